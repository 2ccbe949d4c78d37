#include "threads.hpp"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <mutex>

namespace truenorm::binding {

namespace {

struct Shared {
  std::mutex mutex;
  std::shared_ptr<tn_threads> pool;
};

// Never destroyed: autograd's threads may still be running when a process ends.
Shared& shared() {
  static auto* instance = new Shared;
  return *instance;
}

// A fork copies the memory but not the threads: the child leaves the pool where it is and makes its own.
void before_fork() { shared().mutex.lock(); }
void after_fork_in_parent() { shared().mutex.unlock(); }
void after_fork_in_child() {
  new std::shared_ptr<tn_threads>(std::move(shared().pool));
  shared().pool.reset();
  shared().mutex.unlock();
}

}  // namespace

std::shared_ptr<tn_threads> thread_pool() {
  const int wanted = at::in_parallel_region() ? 1 : at::get_num_threads();
  if (wanted <= 1) return nullptr;
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)registered;
  const std::lock_guard lock(shared().mutex);
  auto& pool = shared().pool;
  if (tn_threads_count(pool.get()) != wanted) {
    tn_threads* made = nullptr;
    // A system that refuses threads costs speed, not results: without a pool the calling thread works alone.
    if (tn_threads_create(wanted, &made, nullptr) != TN_OK) return nullptr;
    pool = std::shared_ptr<tn_threads>(made, tn_threads_destroy);  // calls under way keep the old one until they end
  }
  return pool;
}

}  // namespace truenorm::binding
