#include <algorithm>

#include "cpu/isa.hpp"
#include "cpu/run.hpp"
#include "cpu/threads.hpp"
#include "spec/order.hpp"

namespace truenorm::cpu {

namespace {

constexpr std::int64_t kAccumulatorFloats = 1 << 15;  // a worker's accumulators stay in its second-level cache
constexpr std::int64_t kGroupsPerWorker = 4;          // so that workers end at about the same time
constexpr std::int64_t kCombineColumns = 4 * spec::kBlock;
constexpr std::int64_t kFewestCombined = 1 << 16;

std::int64_t planes(const spec::BackwardCall& call) {
  return (call.dweight.present ? 1 : 0) + (call.dbias.present ? 1 : 0);
}

// Whole blocks, and a last one padded as the kernels pad it.
std::int64_t padded_columns(std::int64_t n) {
  const std::int64_t rest = n % spec::kBlock;
  std::int64_t last = rest == 0 ? 0 : 32;
  while (last < rest) last *= 2;
  return n - rest + last;
}

// Decides the groups of strips. The split changes no bit of the result.
BackwardPlan plan_for(const spec::BackwardCall& call, int workers) {
  BackwardPlan plan{call};
  plan.stream = worth_streaming(call.m, call.n, call.dx, call.dresidual);
  const std::int64_t k = planes(call);
  if (k == 0) return plan;
  plan.columns = padded_columns(plan.n);
  plan.strips = std::min(spec::strips(plan.n), plan.m);
  plan.group_strips = 1;
  while (plan.group_strips * 2 <= plan.strips && plan.columns <= kAccumulatorFloats / (plan.group_strips * 2 * k) &&
         plan.strips / (plan.group_strips * 2) >= kGroupsPerWorker * workers) {
    plan.group_strips *= 2;
  }
  plan.groups = (plan.strips + plan.group_strips - 1) / plan.group_strips;
  return plan;
}

}  // namespace

std::size_t backward_scratch(const spec::BackwardCall& call, int workers) {
  const BackwardPlan plan = plan_for(call, workers);
  const std::int64_t slots = std::min<std::int64_t>(workers, plan.groups);
  const std::int64_t rows = (slots * plan.group_strips + plan.groups) * planes(call);
  constexpr std::int64_t kMost = INT64_MAX / static_cast<std::int64_t>(sizeof(float)) / 2;
  if (rows > 0 && plan.columns > kMost / rows) return kTooMuchScratch;
  return static_cast<std::size_t>(rows * plan.columns) * sizeof(float);
}

void run_backward(const spec::BackwardCall& call, const Kernels& kernels, tn_threads* threads, void* scratch) {
  const IeeeMode ieee;
  const int workers = threads == nullptr ? 1 : threads->count();
  BackwardPlan plan = plan_for(call, workers);
  if (planes(call) == 0) {
    const std::int64_t rows = rows_per_task(plan.m, plan.n, workers);
    parallel_for(threads, (plan.m + rows - 1) / rows, [&](std::int64_t task, int) {
      kernels.backward_rows(plan, task * rows, std::min(plan.m, (task + 1) * rows));
    });
    return;
  }
  plan.partials = static_cast<float*>(scratch);
  plan.accumulators = plan.partials + planes(call) * plan.groups * plan.columns;
  // There are min(workers, groups) accumulators: one a worker, or one a group, whichever is fewer.
  parallel_for(threads, plan.groups, [&](std::int64_t group, int worker) {
    kernels.backward_group(plan, group, plan.groups < workers ? static_cast<int>(group) : worker);
  });
  // A sum over few groups is made before a sleeping worker is awake.
  tn_threads* const helpers = plan.groups * plan.columns < kFewestCombined ? nullptr : threads;
  parallel_for(helpers, (plan.n + kCombineColumns - 1) / kCombineColumns, [&](std::int64_t task, int) {
    kernels.combine(plan, task * kCombineColumns, std::min(plan.n, (task + 1) * kCombineColumns));
  });
}

}  // namespace truenorm::cpu
