#include "cli/floor.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>

#include "cli/floor_kernels.hpp"
#include "cli/host_tensor.hpp"

namespace truenorm::cli {
namespace {

constexpr int kSpins = 2000;                       // some tens of microseconds, as the library's threads do
constexpr size_t kTaskBytes = size_t{256} << 10U;  // read and written by one task
constexpr size_t kLine = 64;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The part of `array` that task `index` of `count` passes over: whole cache lines, but for the last part's end.
template <class Byte>
std::span<Byte> part(std::span<Byte> array, size_t index, size_t count) {
  const size_t lines = array.size() / kLine;
  const size_t begin = lines * index / count * kLine;
  const size_t end = index + 1 == count ? array.size() : lines * (index + 1) / count * kLine;
  return array.subspan(begin, end - begin);
}

bool same_sizes(const CopySet& set) {
  return std::equal(set.reads.begin(), set.reads.end(), set.writes.begin(), set.writes.end(),
                    [](const auto& read, const auto& write) { return read.size() == write.size(); });
}

void copy_with_memcpy(const CopySet& set, size_t index, size_t count) {
  for (size_t i = 0; i < set.reads.size(); ++i) {
    const auto from = part(set.reads[i], index, count);
    if (!from.empty()) std::memcpy(part(set.writes[i], index, count).data(), from.data(), from.size());
  }
}

// Arrays this much smaller than the largest, a weight beside a matrix, are not passed over side by side with it.
constexpr size_t kMuchSmaller = 8;

size_t largest(const CopySet& set) {
  size_t size = 0;
  for (const auto& array : set.reads) size = std::max(size, array.size());
  for (const auto& array : set.writes) size = std::max(size, array.size());
  return size;
}

// No memory is taken here: a small copy may last less than a microsecond.
void copy_part(const CopySet& set, CopyWay way, size_t index, size_t count) {
  if (way == CopyWay::library) return copy_with_memcpy(set, index, count);
  const size_t small = largest(set) / kMuchSmaller;
  const auto goes_along = [small](const auto& array, size_t already, size_t most) {
    return array.size() >= small && already < most;
  };
  CopyLines lines;
  lines.bytes = SIZE_MAX;
  for (const auto& array : set.reads) {
    if (!goes_along(array, lines.read_count, CopyLines::kMaxReads)) continue;
    const auto mine = part(array, index, count);
    lines.reads[lines.read_count++] = mine.data();
    lines.bytes = std::min(lines.bytes, mine.size() / kLine * kLine);
  }
  for (const auto& array : set.writes) {
    if (!goes_along(array, lines.write_count, CopyLines::kMaxWrites)) continue;
    const auto mine = part(array, index, count);
    lines.writes[lines.write_count++] = mine.data();
    lines.bytes = std::min(lines.bytes, mine.size() / kLine * kLine);
  }
  if (lines.read_count == 0 || lines.write_count == 0) lines.bytes = 0;
  if (lines.bytes > 0) copy_lines(lines, way == CopyWay::streaming);

  size_t along = 0;
  for (const auto& array : set.reads) {
    const size_t done = goes_along(array, along, CopyLines::kMaxReads) ? (++along, lines.bytes) : 0;
    read_all(part(array, index, count).subspan(done));
  }
  along = 0;
  for (const auto& array : set.writes) {
    const size_t done = goes_along(array, along, CopyLines::kMaxWrites) ? (++along, lines.bytes) : 0;
    const auto rest = part(array, index, count).subspan(done);
    if (!rest.empty()) std::memset(rest.data(), 0, rest.size());
  }
}

double median_pass(const CopySet& set, CopyWay way, CopyThreads& threads) {
  constexpr size_t kPasses = 5;
  constexpr double kSeconds = 0.05;
  std::vector<double> seconds;
  copy_once(set, way, threads);
  double total = 0;
  while (seconds.size() < kPasses || total < kSeconds) {
    const auto start = std::chrono::steady_clock::now();
    copy_once(set, way, threads);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace

CopyThreads::CopyThreads(int32_t count) {
  workers_.reserve(static_cast<size_t>(std::max(count, 1)) - 1);
  for (int32_t i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
}

CopyThreads::~CopyThreads() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void CopyThreads::take_tasks() {
  for (int64_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) (*task_)(i);
}

void CopyThreads::work() {
  uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && generation_.load() == seen; ++i) pause_briefly();
    generation_.wait(seen);
    ++seen;  // a run ends only when every worker has been through it, so none is ever skipped
    if (stop_) return;
    take_tasks();
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

void CopyThreads::run(int64_t tasks, const std::function<void(int64_t)>& task) {
  task_ = &task;
  tasks_ = tasks;
  next_ = 0;
  running_ = static_cast<uint32_t>(workers_.size());
  generation_.fetch_add(1);
  generation_.notify_all();
  take_tasks();
  for (int i = 0; i < kSpins && running_.load() != 0; ++i) pause_briefly();
  for (uint32_t left = running_.load(); left != 0; left = running_.load()) running_.wait(left);
}

size_t CopySet::bytes() const {
  size_t total = 0;
  for (const auto& array : reads) total += array.size();
  for (const auto& array : writes) total += array.size();
  return total;
}

const char* copy_way_name(CopyWay way) {
  static constexpr std::array<const char*, 3> kNames{"memcpy", "stores", "streaming stores"};
  return kNames.at(static_cast<size_t>(way));
}

std::vector<CopyWay> copy_ways(const CopySet& set) {
  std::vector<CopyWay> ways{CopyWay::stores};
  if (same_sizes(set)) ways.push_back(CopyWay::library);
  const bool aligned = std::all_of(set.writes.begin(), set.writes.end(), [](const auto& array) {
    return reinterpret_cast<uintptr_t>(array.data()) % kLine == 0;
  });
  if (can_stream() && aligned) ways.push_back(CopyWay::streaming);
  return ways;
}

void copy_once(const CopySet& set, CopyWay way, CopyThreads& threads) {
  // A small copy is one task: it would be over before a second thread had begun.
  const size_t tasks = std::max<size_t>(1, set.bytes() / kTaskBytes);
  if (tasks == 1 || threads.count() == 1) {
    for (size_t i = 0; i < tasks; ++i) copy_part(set, way, i, tasks);
    return;
  }
  threads.run(static_cast<int64_t>(tasks), [&](int64_t i) { copy_part(set, way, static_cast<size_t>(i), tasks); });
}

double copy_floor_seconds(std::span<const size_t> reads, std::span<const size_t> writes, CopyThreads& threads) {
  std::vector<Buffer> buffers;
  CopySet set;
  for (const size_t size : reads) {
    const auto bytes = buffers.emplace_back(size).bytes();
    if (!bytes.empty()) std::memset(bytes.data(), 1, bytes.size());
    set.reads.emplace_back(bytes);
  }
  for (const size_t size : writes) set.writes.push_back(buffers.emplace_back(size).bytes());
  double best = std::numeric_limits<double>::infinity();
  for (const CopyWay way : copy_ways(set)) best = std::min(best, median_pass(set, way, threads));
  return best;
}

}  // namespace truenorm::cli
