#include <algorithm>

#include "cpu/isa.hpp"
#include "cpu/run.hpp"
#include "cpu/threads.hpp"

namespace truenorm::cpu {

namespace {
// A task's rows share what a kernel makes ready once, and each fetches the next in time: many are better than few, as
// long as every worker gets several tasks, and taking a task costs nothing beside it.
constexpr std::int64_t kFewestElements = 1 << 14;
constexpr std::int64_t kMostElements = 1 << 18;
constexpr std::int64_t kTasksPerWorker = 8;
constexpr double kStreamBytes = 2 << 20;
}  // namespace

std::int64_t rows_per_task(std::int64_t m, std::int64_t n, int workers) {
  const std::int64_t fair = m / (kTasksPerWorker * workers);
  return std::max<std::int64_t>(1, std::clamp(fair, kFewestElements / n, kMostElements / n));
}

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
  const std::int64_t rows = rows_per_task(plan.m, plan.n, threads == nullptr ? 1 : threads->count());
  parallel_for(threads, (plan.m + rows - 1) / rows, [&](std::int64_t task, int) {
    kernels.forward(plan, task * rows, std::min(plan.m, (task + 1) * rows));
  });
}

}  // namespace truenorm::cpu
