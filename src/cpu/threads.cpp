#include "cpu/threads.hpp"

#include "cpu/isa.hpp"

namespace {

// Calls often come back to back: a worker looks for the next one for some tens of microseconds before it sleeps.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

tn_threads::tn_threads(int count) {
  workers_.reserve(static_cast<std::size_t>(count - 1));
  try {
    for (int i = 1; i < count; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (auto& w : workers_) w.join();
    throw;
  }
}

tn_threads::~tn_threads() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& w : workers_) w.join();
}

void tn_threads::take_tasks(int worker) {
  for (;;) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    body_(context_, task, worker);
  }
}

void tn_threads::work(int worker) {
  const truenorm::cpu::IeeeMode ieee;
  std::uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; ++i) pause_briefly();
    generation_.wait(seen, std::memory_order_acquire);
    ++seen;  // a run ends only when every worker has been through it, so none is ever skipped
    if (stop_) return;
    take_tasks(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void tn_threads::run(std::int64_t tasks, Body body, void* context) {
  const std::unique_lock lock(busy_, std::try_to_lock);
  if (!lock.owns_lock()) {
    for (std::int64_t task = 0; task < tasks; ++task) body(context, task, 0);
    return;
  }
  body_ = body;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_tasks(0);
  for (int i = 0; i < kSpins && running_.load(std::memory_order_acquire) != 0; ++i) pause_briefly();
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    running_.wait(left, std::memory_order_acquire);
  }
}
