// Timing in shuffled rounds, and what is said of the samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace truenorm::cli {

// In the samples' unit; NaN where there are none.
struct Summary {
  double median;
  double min;
  double max;
};
Summary summarise(std::vector<double> samples);

// What is timed: `call` works on buffer set `set`.
struct Timed {
  std::function<void(size_t set)> call;
  int64_t calls = 1;              // in each sample; measure() decides
  std::vector<double> seconds{};  // per call, one for each round
};

struct Rounds {
  int count = 7;
  double sample_seconds = 0.02;  // a sample is as many calls as last this long, and at least one
  size_t sets = 1;               // each call takes the next set, whoever made the last one
  uint64_t seed = 1;
};

// Fills in `calls` and `seconds` of each entry. Every round takes one sample of every entry, in an order of its own,
// so that what disturbs the machine for a while disturbs all of them.
void measure(std::span<Timed> entries, const Rounds& rounds);

}  // namespace truenorm::cli
