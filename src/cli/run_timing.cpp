#include "cli/run_timing.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "cli/bench_measure.hpp"
#include "cli/cuda/copy.hpp"
#include "cli/cuda/timing.hpp"
#include "cli/floor.hpp"

namespace truenorm::cli {
namespace {

// At least 5 times, and until half a second has passed.
std::vector<double> repeat(const std::function<double()>& seconds) {
  constexpr size_t kMinRuns = 5;
  constexpr double kMinSeconds = 0.5;
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  const auto begin = Clock::now();
  while (samples.size() < kMinRuns || std::chrono::duration<double>(Clock::now() - begin).count() < kMinSeconds) {
    samples.push_back(seconds());
  }
  return samples;
}

// The fastest of the plain copies, with half of the bytes read and half of them written.
double device_copy_seconds(size_t bytes, const DeviceStream& stream, const DeviceTimer& timer) {
  const DeviceMemory from(bytes / 2 + sizeof(uint64_t) * 2), to(from.size());
  const CopySet set{{std::span<const std::byte>(from.data(), bytes / 2)}, {std::span(to.data(), bytes / 2)}};
  double best = std::numeric_limits<double>::infinity();
  for (const int vectors : kCopyVectors) {
    const auto copy = [&] { copy_on_stream(set, vectors, stream); };
    best = std::min(best, summarise(repeat([&] { return timer.seconds(copy, 1); })).median);
  }
  return best;
}

void time_on_device(RunCall& call, RunTiming& timing) {
  const DeviceStream stream;
  const DeviceTimer timer(stream);
  std::vector<double> samples = repeat([&] { return timer.seconds([&] { call.enqueue(stream.get()); }, 1); });
  timing.runs = static_cast<int>(samples.size());
  timing.call = summarise(std::move(samples)).median;
  timing.copy = device_copy_seconds(timing.bytes, stream, timer);
}

void time_on_cpu(RunCall& call, const Executor& executor, RunTiming& timing) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples = repeat([&] {
    const auto start = Clock::now();
    call.run();
    return std::chrono::duration<double>(Clock::now() - start).count();
  });
  CopyThreads threads(executor.threads());
  timing.runs = static_cast<int>(samples.size());
  timing.call = summarise(std::move(samples)).median;
  timing.copy = copy_floor_seconds(call.reads(), call.writes(), threads);
}

}  // namespace

RunTiming time_call(RunCall& call, const Executor& executor) {
  const std::vector<size_t> writes = call.writes();
  RunTiming timing;
  timing.bytes = std::accumulate(writes.begin(), writes.end(),
                                 std::accumulate(call.reads().begin(), call.reads().end(), size_t{0}));
  executor.cuda() ? time_on_device(call, timing) : time_on_cpu(call, executor, timing);
  return timing;
}

}  // namespace truenorm::cli
