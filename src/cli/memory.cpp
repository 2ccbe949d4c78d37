#include "cli/memory.hpp"

#include <algorithm>
#include <cstring>

namespace truenorm::cli {

Memory::Memory(tn_device_type device, size_t size) : device_(device) {
  if (device == TN_CUDA) {
    there_ = DeviceMemory(size);
  } else {
    host_ = Buffer(size);
  }
}

std::span<std::byte> Memory::bytes() const {
  return device_ == TN_CUDA ? std::span(there_.data(), there_.size()) : host_.bytes();
}

void Memory::zero() {
  const auto all = bytes();
  if (all.empty()) return;
  if (device_ == TN_CUDA) {
    zero_on_device(all.data(), all.size());
  } else {
    std::memset(all.data(), 0, all.size());
  }
}

void Memory::fill(std::span<const std::byte> pattern, size_t size) {
  std::byte* const data = bytes().data();
  if (size == 0) return;
  if (device_ != TN_CUDA) {
    for (size_t at = 0; at < size; at += pattern.size()) {
      std::memcpy(data + at, pattern.data(), std::min(pattern.size(), size - at));
    }
    return;
  }
  size_t done = std::min(pattern.size(), size);
  upload(data, pattern.data(), done);
  while (done < size) {
    const size_t more = std::min(done, size - done);
    copy_on_device(data + done, data, more);
    done += more;
  }
}

Scratch::Scratch(tn_device_type device, const tn_workspace& sizes)
    : data_(device, sizes.size), counters_(device, sizes.counters_size), workspace_(sizes) {
  counters_.zero();
  workspace_.data = data_.bytes().data();
  workspace_.counters = counters_.bytes().data();
}

}  // namespace truenorm::cli
