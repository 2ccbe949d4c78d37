#include <algorithm>

#include "cpu/isa.hpp"
#include "cpu/run.hpp"
#include "cpu/threads.hpp"

namespace truenorm::cpu {

namespace {
constexpr std::int64_t kTaskElements = 1 << 15;  // enough work that taking a task costs nothing beside it
constexpr double kStreamBytes = 2 << 20;
}  // namespace

std::int64_t rows_per_task(std::int64_t n) { return std::max<std::int64_t>(1, kTaskElements / n); }

bool worth_streaming(std::int64_t m, std::int64_t n, const Rows& a, const Rows& b) {
  std::int64_t element = 0;
  for (const Rows* t : {&a, &b}) {
    if (t->present) element += spec::size_of(t->type);
  }
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(element) >= kStreamBytes;
}

void run_forward(const spec::ForwardCall& call, const Kernels& kernels, tn_threads* threads) {
  const IeeeMode ieee;
  const ForwardPlan plan{call, worth_streaming(call.m, call.n, call.y, call.s)};
  const std::int64_t rows = rows_per_task(plan.n);
  parallel_for(threads, (plan.m + rows - 1) / rows, [&](std::int64_t task, int) {
    kernels.forward(plan, task * rows, std::min(plan.m, (task + 1) * rows));
  });
}

}  // namespace truenorm::cpu
