// Everything that is timed together: one shape, type and number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_case.hpp"
#include "cli/bench_measure.hpp"
#include "cli/bench_plan.hpp"
#include "cli/floor.hpp"

namespace truenorm::cli {

// Seconds throughout. `cold` is a CUDA device's time of single launches, each with a cold L2 cache.
struct FloorResult {
  Traffic traffic;
  std::string way;
  Summary seconds;
  std::optional<Summary> cold{};
};

struct OpResult {
  BenchOp op;
  Direction direction;
  std::string isa;  // resolved: never "auto"; empty on a CUDA device
  size_t bytes;     // of the matrices read and written
  size_t workspace_bytes;
  int64_t calls;  // in each sample
  std::vector<double> samples;
  Summary seconds;
  FloorResult floor;  // the fastest of the copies with this traffic
  std::optional<Summary> cold;
  std::optional<Summary> cold_floor;

  double ratio() const { return seconds.median / floor.seconds.median; }
};

struct BenchGroup {
  BenchShape shape;
  tn_dtype dtype;
  int32_t threads;  // 0 on a CUDA device
  size_t sets;
  std::vector<OpResult> results;
  std::vector<FloorResult> copies;  // every way of copying that was tried
  double noise;                     // the first result's time over that of the very same call under another name
};

// Times all operations and directions of the plan on the CPU, and copies with their traffic, in the same shuffled
// rounds.
BenchGroup run_group(const BenchPlan& plan, const BenchMemory& memory, int32_t threads);

// What the plan asks for has these, each once.
std::vector<Traffic> traffics(const BenchPlan& plan);

// The one with the smallest median among those with this traffic.
FloorResult fastest_copy(const std::vector<FloorResult>& copies, const Traffic& traffic);

}  // namespace truenorm::cli
