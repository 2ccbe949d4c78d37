// The pool behind tn_threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

// A call hands the pool a number of tasks; its workers and the caller take them one by one. Which worker takes which
// task decides nothing about the results.
struct tn_threads {
 public:
  explicit tn_threads(int count);
  ~tn_threads();
  tn_threads(const tn_threads&) = delete;
  tn_threads& operator=(const tn_threads&) = delete;

  int count() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  // body(context, task, worker) for each task in [0, tasks); worker in [0, count()). Returns when all are done.
  // Where another call holds the pool, the caller does all of them itself, as worker 0.
  using Body = void (*)(void* context, std::int64_t task, int worker);
  void run(std::int64_t tasks, Body body, void* context);

 private:
  void work(int worker);
  void take_tasks(int worker);

  std::mutex busy_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

namespace truenorm::cpu {

// fn(task, worker) for each task, on the pool, or on the calling thread where there is none.
template <class Fn>
void parallel_for(tn_threads* threads, std::int64_t tasks, const Fn& fn) {
  if (threads == nullptr || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) fn(task, 0);
    return;
  }
  threads->run(
      tasks, [](void* context, std::int64_t task, int worker) { (*static_cast<const Fn*>(context))(task, worker); },
      const_cast<Fn*>(&fn));
}

}  // namespace truenorm::cpu
