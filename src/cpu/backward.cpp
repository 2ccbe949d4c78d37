#include <algorithm>

#include "cpu/isa.hpp"
#include "cpu/run.hpp"
#include "cpu/threads.hpp"
#include "spec/order.hpp"

namespace truenorm::cpu {

namespace {

constexpr std::int64_t kAccumulatorFloats = 1 << 15;  // a worker's accumulators stay in its second-level cache
constexpr std::int64_t kGroupsPerWorker = 4;          // so that workers end at about the same time

std::int64_t planes(const BackwardPlan& plan) { return (plan.dweight.present ? 1 : 0) + (plan.dbias.present ? 1 : 0); }

// Whole blocks, and a last one padded as the kernels pad it.
std::int64_t padded_columns(std::int64_t n) {
  const std::int64_t rest = n % spec::kBlock;
  std::int64_t last = rest == 0 ? 0 : 32;
  while (last < rest) last *= 2;
  return n - rest + last;
}

}  // namespace

std::size_t plan_scratch(BackwardPlan& plan, int workers) {
  const std::int64_t k = planes(plan);
  if (k == 0) return 0;
  plan.columns = padded_columns(plan.n);
  plan.strips = std::min(spec::strips(plan.n), plan.m);
  plan.group_strips = 1;
  while (plan.group_strips * 2 <= plan.strips && plan.group_strips * 2 * plan.columns * k <= kAccumulatorFloats &&
         plan.strips / (plan.group_strips * 2) >= kGroupsPerWorker * workers) {
    plan.group_strips *= 2;
  }
  plan.groups = (plan.strips + plan.group_strips - 1) / plan.group_strips;
  const std::int64_t slots = std::min<std::int64_t>(workers, plan.groups);
  const std::int64_t rows = slots * plan.group_strips + plan.groups;
  return static_cast<std::size_t>(rows * k * plan.columns) * sizeof(float);
}

void run_backward(BackwardPlan plan, const Kernels& kernels, tn_threads* threads, void* scratch) {
  const IeeeMode ieee;
  if (planes(plan) == 0) {
    const std::int64_t rows = rows_per_task(plan.n);
    parallel_for(threads, (plan.m + rows - 1) / rows, [&](std::int64_t task, int) {
      kernels.backward_rows(plan, task * rows, std::min(plan.m, (task + 1) * rows));
    });
    return;
  }
  plan.partials = static_cast<float*>(scratch);
  plan.accumulators = plan.partials + planes(plan) * plan.groups * plan.columns;
  parallel_for(threads, plan.groups, [&](std::int64_t group, int worker) { kernels.backward_group(plan, group, worker); });
  constexpr std::int64_t kColumns = spec::kBlock * 4;
  parallel_for(threads, (plan.n + kColumns - 1) / kColumns, [&](std::int64_t task, int) {
    kernels.combine(plan, task * kColumns, std::min(plan.n, (task + 1) * kColumns));
  });
}

}  // namespace truenorm::cpu
