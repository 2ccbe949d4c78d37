// Memory where calls run: the host's, or that of the CUDA device that was chosen.
#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <span>

#include "cli/cuda/device.hpp"
#include "cli/host_tensor.hpp"

namespace truenorm::cli {

class Memory {
 public:
  Memory() = default;
  Memory(tn_device_type device, size_t size);

  // Addresses of the device, where it is one's: not for the host to read.
  std::span<std::byte> bytes() const;

  void zero();
  // The first bytes of the memory become `pattern` again and again, as far as `size`.
  void fill(std::span<const std::byte> pattern, size_t size);

 private:
  tn_device_type device_ = TN_CPU;
  Buffer host_;
  DeviceMemory there_;
};

// Memory for the scratch that a *_workspace call asked for.
class Scratch {
 public:
  Scratch(tn_device_type device, const tn_workspace& sizes);
  const tn_workspace* workspace() const { return &workspace_; }

 private:
  Memory data_;
  Memory counters_;
  tn_workspace workspace_;
};

}  // namespace truenorm::cli
