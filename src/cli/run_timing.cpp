#include "cli/run_timing.hpp"

#include <chrono>
#include <numeric>
#include <vector>

#include "cli/bench_measure.hpp"
#include "cli/floor.hpp"

namespace truenorm::cli {

RunTiming time_call(RunCall& call, const Executor& executor) {
  constexpr size_t kMinRuns = 5;
  constexpr double kMinSeconds = 0.5;
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<double> samples;
  for (const auto begin = Clock::now(); samples.size() < kMinRuns || seconds_since(begin) < kMinSeconds;) {
    const auto start = Clock::now();
    call.run();
    samples.push_back(seconds_since(start));
  }
  const std::vector<size_t> writes = call.writes();
  CopyThreads threads(executor.threads());
  RunTiming timing;
  timing.runs = static_cast<int>(samples.size());
  timing.call = summarise(std::move(samples)).median;
  timing.copy = copy_floor_seconds(call.reads(), writes, threads);
  timing.bytes = std::accumulate(writes.begin(), writes.end(),
                                 std::accumulate(call.reads().begin(), call.reads().end(), size_t{0}));
  return timing;
}

}  // namespace truenorm::cli
