#include "cli/bench_group.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <stdexcept>

namespace truenorm::cli {
namespace {

constexpr uint64_t kSeed = 1;

struct Copies {
  Traffic traffic;
  std::vector<CopySet> sets;  // made beforehand, so that taking one costs nothing
};

std::vector<Copies> make_copies(const BenchPlan& plan, const BenchMemory& memory) {
  std::vector<Copies> out;
  for (const Traffic& kind : traffics(plan)) {
    Copies& copies = out.emplace_back(Copies{kind, {}});
    for (size_t set = 0; set < memory.sets(); ++set) copies.sets.push_back(copy_set(kind, memory, set));
  }
  return out;
}

}  // namespace

std::vector<Traffic> traffics(const BenchPlan& plan) {
  std::set<Traffic> kinds;
  for (const BenchOp& op : plan.ops) {
    for (const Direction direction : plan.directions) kinds.insert(traffic(op, direction));
  }
  return {kinds.begin(), kinds.end()};
}

FloorResult fastest_copy(const std::vector<FloorResult>& copies, const Traffic& traffic) {
  const FloorResult* best = nullptr;
  for (const FloorResult& copy : copies) {
    if (copy.traffic == traffic && (best == nullptr || copy.seconds.median < best->seconds.median)) best = &copy;
  }
  if (best == nullptr) throw std::logic_error("no copy of this traffic was timed");
  return *best;
}

BenchGroup run_group(const BenchPlan& plan, const BenchMemory& memory, int32_t threads) {
  const BenchVectors vectors(memory, plan.weights_beside(memory.dtype()));
  std::deque<Executor> executors;
  std::deque<BenchCall> calls;
  std::vector<Timed> timed;
  BenchGroup group{memory.shape(), memory.dtype(), threads, memory.sets(), {}, {}, 0};

  for (const std::string& isa : plan.isas) {
    ExecOptions options;
    options.isa = isa;
    options.threads = threads;
    const Executor& executor = executors.emplace_back(options);
    for (const BenchOp& op : plan.ops) {
      for (const Direction direction : plan.directions) {
        BenchCall& call = calls.emplace_back(op, direction, memory, vectors, executor.exec());
        timed.push_back({[&call](size_t set) { call(set); }});
        const Traffic moved = traffic(op, direction);
        OpResult& result = group.results.emplace_back();
        result.op = op;
        result.direction = direction;
        result.isa = tn_isa_name(executor.isa());
        result.bytes = static_cast<size_t>(moved.reads + moved.writes) * memory.matrix_bytes();
        result.workspace_bytes = call.workspace_bytes();
      }
    }
  }
  const size_t again = timed.size();
  timed.push_back({timed.front().call});

  CopyThreads copy_threads(threads);
  const std::vector<Copies> copies = make_copies(plan, memory);
  for (const Copies& copy : copies) {
    for (const CopyWay way : copy_ways(copy.sets.front())) {
      timed.push_back({[&copy, way, &copy_threads](size_t set) { copy_once(copy.sets[set], way, copy_threads); }});
      group.copies.push_back({copy.traffic, copy_way_name(way), {}});
    }
  }

  measure(timed, {plan.rounds, plan.sample_seconds, memory.sets(), kSeed});
  for (size_t i = 0; i < group.copies.size(); ++i) group.copies[i].seconds = summarise(timed[again + 1 + i].seconds);
  for (size_t i = 0; i < group.results.size(); ++i) {
    OpResult& result = group.results[i];
    result.calls = timed[i].calls;
    result.samples = timed[i].seconds;
    result.seconds = summarise(timed[i].seconds);
    result.floor = fastest_copy(group.copies, traffic(result.op, result.direction));
  }
  group.noise = group.results.front().seconds.median / summarise(timed[again].seconds).median;
  return group;
}

}  // namespace truenorm::cli
