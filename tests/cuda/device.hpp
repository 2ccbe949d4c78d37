// Tests' memory on a CUDA device, and calls there.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>

#include "support/arena.hpp"
#include "truenorm/truenorm.h"

namespace truenorm::test {

// Skips the test, aloud, where there is no device.
#define TN_NEEDS_CUDA()                                                                       \
  do {                                                                                        \
    if (tn_device_count(TN_CUDA) == 0) GTEST_SKIP() << "no CUDA device: nothing was checked"; \
  } while (false)

void require(cudaError_t e);

// Memory of the current device, kept for the next one that asks: allocation would take longer than the calls under
// test.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  void fill(int byte) { require(cudaMemset(data_, byte, size_)); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
  int device_ = 0;
};

// An arena's memory on the device, at the same alignment.
class DeviceCopy {
 public:
  explicit DeviceCopy(Arena& arena);
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  void upload();
  void download();
  tn_tensor moved(const tn_tensor& t) const;
  tn_forward_args moved(tn_forward_args args) const;
  tn_backward_args moved(tn_backward_args args) const;

 private:
  struct Place {
    std::size_t size;
    std::byte* device;
  };
  static std::size_t total(Arena& arena);

  DeviceBytes memory_;
  std::map<std::byte*, Place> places_;  // by host address
};

tn_exec on_device(cudaStream_t stream = nullptr, int device = 0);

// A backward's scratch: of exactly the size asked for, with canaries around it, `data` full of NaNs.
class DeviceWorkspace {
 public:
  explicit DeviceWorkspace(const tn_backward_args& args, int device = 0);
  const tn_workspace& get() const { return workspace_; }
  // Canaries are whole and the counters zero.
  testing::AssertionResult left_well() const;

 private:
  static tn_workspace needed(const tn_backward_args& args, int device);

  tn_workspace workspace_;
  DeviceBytes data_, counters_;
};

// Enqueue, of device tensors, and expect success.
void enqueue(const tn_forward_args& args, const tn_exec& exec);
void enqueue(const tn_backward_args& args, const DeviceWorkspace& workspace, const tn_exec& exec);
void enqueue(const tn_forward_args& args, cudaStream_t stream = nullptr);
void enqueue(const tn_backward_args& args, const DeviceWorkspace& workspace, cudaStream_t stream = nullptr);

// Upload, call, download.
void run_on_device(Arena& arena, const tn_forward_args& args);
void run_on_device(Arena& arena, const tn_backward_args& args);

}  // namespace truenorm::test
