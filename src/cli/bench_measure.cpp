#include "cli/bench_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace truenorm::cli {
namespace {

constexpr int64_t kMaxCalls = 1'000'000;

class Sampler {
 public:
  explicit Sampler(size_t sets) : sets_(sets) {}

  // Seconds a call.
  double sample(const Timed& entry, int64_t calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) {
      entry.call(next_);
      next_ = next_ + 1 == sets_ ? 0 : next_ + 1;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return seconds / static_cast<double>(calls);
  }

 private:
  size_t sets_;
  size_t next_ = 0;
};

// How many calls last `seconds`; the first ones, which also meet cold code and untouched memory, do not count.
int64_t calls_for(double seconds, const Timed& entry, Sampler& sampler) {
  sampler.sample(entry, 1);
  for (int64_t calls = 1;; calls *= 4) {
    const double each = std::max(sampler.sample(entry, calls), 1e-9);
    if (each * static_cast<double>(calls) * 4 >= seconds || calls * 4 >= kMaxCalls) {
      return std::clamp<int64_t>(std::llround(std::ceil(seconds / each)), 1, kMaxCalls);
    }
  }
}

}  // namespace

Summary summarise(std::vector<double> samples) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (samples.empty()) return {kNan, kNan, kNan};
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {median, samples.front(), samples.back()};
}

void measure(std::span<Timed> entries, const Rounds& rounds) {
  Sampler sampler(rounds.sets);
  for (Timed& entry : entries) {
    entry.calls = calls_for(rounds.sample_seconds, entry, sampler);
    entry.seconds.clear();
  }
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(rounds.seed);
  for (int round = 0; round < rounds.count; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) entries[i].seconds.push_back(sampler.sample(entries[i], entries[i].calls));
  }
}

}  // namespace truenorm::cli
