// What an operation's time is measured against: a plain copy that reads and writes as many bytes, on as many threads,
// in the same run. Nothing that reads those bytes from memory and writes them back can be expected to beat it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "cli/copy_set.hpp"

namespace truenorm::cli {

// The threads of a copy: tasks are taken one by one, as the library's own threads do, the caller being one of them.
class CopyThreads {
 public:
  explicit CopyThreads(int32_t count);
  ~CopyThreads();
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  int32_t count() const { return static_cast<int32_t>(workers_.size()) + 1; }
  // task(i) for each i in [0, tasks); returns when all are done. Not for two callers at once.
  void run(int64_t tasks, const std::function<void(int64_t)>& task);

 private:
  void work();
  void take_tasks();

  const std::function<void(int64_t)>* task_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// The ways to make a plain copy. Which is the fastest depends on the machine, the sizes and the threads, so the floor
// is the fastest of them as measured.
enum class CopyWay { library, stores, streaming };  // memcpy; vector stores; vector stores past the caches

// "memcpy", "stores", "streaming stores".
const char* copy_way_name(CopyWay way);

// The ways that this machine has for `set`; never none.
std::vector<CopyWay> copy_ways(const CopySet& set);

// Passes over `set` once. Where there are more reads than writes the outputs are the exclusive or of what was read.
void copy_once(const CopySet& set, CopyWay way, CopyThreads& threads);

// Seconds that the fastest way takes over buffers of its own of these sizes in bytes, passed over again and again:
// the median of at least five passes and about 50 ms a way. Throws std::bad_alloc where the buffers find no room.
double copy_floor_seconds(std::span<const size_t> reads, std::span<const size_t> writes, CopyThreads& threads);

}  // namespace truenorm::cli
