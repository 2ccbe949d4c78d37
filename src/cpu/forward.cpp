#include <algorithm>

#include "cpu/isa.hpp"
#include "cpu/run.hpp"
#include "cpu/threads.hpp"

namespace truenorm::cpu {

namespace {
constexpr std::int64_t kTaskElements = 1 << 15;  // enough work that taking a task costs nothing beside it
}

std::int64_t rows_per_task(std::int64_t n) { return std::max<std::int64_t>(1, kTaskElements / n); }

void run_forward(const ForwardPlan& plan, const Kernels& kernels, tn_threads* threads) {
  const IeeeMode ieee;
  const std::int64_t rows = rows_per_task(plan.n);
  parallel_for(threads, (plan.m + rows - 1) / rows, [&](std::int64_t task, int) {
    kernels.forward(plan, task * rows, std::min(plan.m, (task + 1) * rows));
  });
}

}  // namespace truenorm::cpu
