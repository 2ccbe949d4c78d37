#include "cuda/large.hpp"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "cuda/device.hpp"

namespace truenorm::test {

namespace {

constexpr int kCanary = 0xa5;

// Copies from the device to pageable memory would come at a tenth of the speed.
class Pinned {
 public:
  explicit Pinned(std::size_t size) {
    void* data = nullptr;
    require(cudaHostAlloc(&data, size, cudaHostAllocDefault));
    data_ = static_cast<std::byte*>(data);
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace

Turn::Turn() {
  const auto path = std::filesystem::temp_directory_path() / "truenorm-cuda-large.lock";
  file_ = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (file_ < 0 || flock(file_, LOCK_EX) != 0) throw std::runtime_error("no turn: " + path.string());
}

Turn::~Turn() { close(file_); }

bool room_for(std::size_t bytes) {
  std::size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total));
  return bytes + (std::size_t{1} << 30) <= free;
}

Large::Large(std::size_t size) : size_(size) {
  void* data = nullptr;
  require(cudaMalloc(&data, size + 2 * kMargin));
  all_ = static_cast<std::byte*>(data);
  require(cudaMemset(all_, kCanary, kMargin));
  require(cudaMemset(all_ + kMargin, 0xff, size));
  require(cudaMemset(all_ + kMargin + size, kCanary, kMargin));
}

Large::~Large() { cudaFree(all_); }

void Large::repeat(const std::vector<std::byte>& pattern) {
  std::size_t have = std::min(pattern.size(), size_);
  require(cudaMemcpy(data(), pattern.data(), have, cudaMemcpyHostToDevice));
  while (have < size_) {
    const std::size_t more = std::min(have, size_ - have);
    require(cudaMemcpy(data() + have, data(), more, cudaMemcpyDeviceToDevice));
    have += more;
  }
  require(cudaDeviceSynchronize());
}

testing::AssertionResult Large::repeats(const std::vector<std::byte>& pattern, std::size_t first,
                                        std::size_t last) const {
  const Pinned here(std::max<std::size_t>(pattern.size(), 1));
  for (std::size_t at = first; at < last; at += pattern.size()) {
    const std::size_t size = std::min(pattern.size(), last - at);
    require(cudaMemcpy(here.data(), data() + at, size, cudaMemcpyDeviceToHost));
    if (std::memcmp(here.data(), pattern.data(), size) == 0) continue;
    const auto [got, want] = std::mismatch(here.data(), here.data() + size, pattern.data());
    const auto byte = at + static_cast<std::size_t>(got - here.data());
    return testing::AssertionFailure() << "byte " << byte << " of " << size_ << " is " << static_cast<int>(*got)
                                       << ", expected " << static_cast<int>(*want);
  }
  return margins_whole();
}

testing::AssertionResult Large::margins_whole() const {
  std::vector<unsigned char> here(kMargin);
  for (const std::byte* margin : {all_, all_ + kMargin + size_}) {
    require(cudaMemcpy(here.data(), margin, kMargin, cudaMemcpyDeviceToHost));
    if (std::all_of(here.begin(), here.end(), [](unsigned char b) { return b == kCanary; })) continue;
    return testing::AssertionFailure() << "written " << (margin == all_ ? "before" : "after") << " the array";
  }
  return testing::AssertionSuccess();
}

}  // namespace truenorm::test
