#include "cli/bench_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <random>

#include "cli/cuda/copy.hpp"
#include "cli/cuda/timing.hpp"

namespace truenorm::cli {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int kColdSamples = 5;  // in each round
// The host has that much more time to enqueue a graph than a single call.
constexpr int kGraphFlushes = 4;
constexpr int kColdFlushes = 1;

// Hands out the sets in turn, whoever asks.
class Turn {
 public:
  explicit Turn(size_t sets) : sets_(sets) {}
  size_t next() { return std::exchange(next_, next_ + 1 == sets_ ? 0 : next_ + 1); }

 private:
  size_t sets_;
  size_t next_ = 0;
};

// One thing to time: the call, which enqueues itself on a set, and many of them as a graph.
class Entry {
 public:
  Entry(std::function<void(size_t)> call, int64_t calls, Turn& turn, const DeviceStream& stream)
      : call_(std::move(call)), calls_(calls), turn_(turn), graph_(capture(stream)) {}

  void sample(const DeviceTimer& timer) {
    const double seconds = timer.seconds([this] { graph_.replay(); }, kGraphFlushes);
    seconds_.push_back(seconds / static_cast<double>(calls_));
    for (int i = 0; i < kColdSamples; ++i) {
      const size_t set = turn_.next();
      cold_.push_back(timer.seconds([&] { call_(set); }, kColdFlushes));
    }
  }
  void warm_up() const { graph_.replay(); }

  int64_t calls() const { return calls_; }
  const std::vector<double>& seconds() const { return seconds_; }
  const std::vector<double>& cold() const { return cold_; }

 private:
  DeviceGraph capture(const DeviceStream& stream) {
    call_(turn_.next());  // what is done once, loading the kernel say, is done outside of the graph
    stream.synchronize();
    return DeviceGraph(stream, [this] {
      for (int64_t i = 0; i < calls_; ++i) call_(turn_.next());
    });
  }

  std::function<void(size_t)> call_;
  int64_t calls_;
  Turn& turn_;
  DeviceGraph graph_;
  std::vector<double> seconds_;
  std::vector<double> cold_;
};

void measure(std::deque<Entry>& entries, int rounds, const DeviceStream& stream) {
  const DeviceTimer timer(stream);
  for (const Entry& entry : entries) entry.warm_up();
  stream.synchronize();
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) entries[i].sample(timer);
  }
}

std::optional<Summary> fastest_cold(const std::vector<FloorResult>& copies, const Traffic& traffic) {
  std::optional<Summary> best;
  for (const FloorResult& copy : copies) {
    if (copy.traffic == traffic && (!best || copy.cold->median < best->median)) best = copy.cold;
  }
  return best;
}

}  // namespace

int64_t graph_calls(size_t call_bytes, size_t rotate_bytes) {
  constexpr size_t kLeast = 10;   // of large matrices
  constexpr size_t kMost = 1000;  // of small ones: the copy before each replay keeps those out of the cache
  const size_t calls = (rotate_bytes + call_bytes - 1) / std::max<size_t>(call_bytes, 1);
  return static_cast<int64_t>(std::clamp(calls, kLeast, kMost));
}

BenchGroup run_cuda_group(const BenchPlan& plan, const tn_exec& exec, const BenchMemory& memory) {
  const DeviceStream stream;
  tn_exec on_stream = exec;
  on_stream.stream = stream.get();
  on_stream.programmatic = plan.programmatic ? 1 : 0;
  const BenchVectors vectors(memory, plan.weights_beside(memory.dtype()));
  std::deque<BenchCall> calls;
  std::deque<Entry> entries;
  Turn turn(memory.sets());
  BenchGroup group{memory.shape(), memory.dtype(), 0, memory.sets(), {}, {}, 0};
  const auto bytes_of = [&](const Traffic& moved) {
    return static_cast<size_t>(moved.reads + moved.writes) * memory.matrix_bytes();
  };
  const auto add = [&](std::function<void(size_t)> call, size_t bytes) {
    entries.emplace_back(std::move(call), graph_calls(bytes, plan.rotate_bytes), turn, stream);
  };

  for (const BenchOp& op : plan.ops) {
    for (const Direction direction : plan.directions) {
      BenchCall& call = calls.emplace_back(op, direction, memory, vectors, on_stream);
      OpResult& result = group.results.emplace_back();
      result.op = op;
      result.direction = direction;
      result.bytes = bytes_of(traffic(op, direction));
      result.workspace_bytes = call.workspace_bytes();
      add([&call](size_t set) { call(set); }, result.bytes);
    }
  }
  const size_t again = entries.size();
  add([&call = calls.front()](size_t set) { call(set); }, group.results.front().bytes);
  for (const Traffic& moved : traffics(plan)) {
    for (const int width : kCopyVectors) {
      add([&, moved, width](size_t set) { copy_on_stream(copy_set(moved, memory, set), width, stream); },
          bytes_of(moved));
      group.copies.push_back({moved, fmt::format("{} vector{} a thread", width, width == 1 ? "" : "s"), {}});
    }
  }

  measure(entries, plan.rounds, stream);
  for (size_t i = 0; i < group.copies.size(); ++i) {
    group.copies[i].seconds = summarise(entries[again + 1 + i].seconds());
    group.copies[i].cold = summarise(entries[again + 1 + i].cold());
  }
  for (size_t i = 0; i < group.results.size(); ++i) {
    OpResult& result = group.results[i];
    const Traffic moved = traffic(result.op, result.direction);
    result.calls = entries[i].calls();
    result.samples = entries[i].seconds();
    result.seconds = summarise(entries[i].seconds());
    result.floor = fastest_copy(group.copies, moved);
    result.cold = summarise(entries[i].cold());
    result.cold_floor = fastest_cold(group.copies, moved);
  }
  group.noise = group.results.front().seconds.median / summarise(entries[again].seconds()).median;
  return group;
}

}  // namespace truenorm::cli
