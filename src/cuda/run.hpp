// The CUDA backend as the API sees it. In a build without CUDA, absent.cpp stands for all of it.
#pragma once

#include <cstddef>

#include "spec/call.hpp"

namespace truenorm::cuda {

bool compiled();

// Devices that can be used now; 0 where there is no driver.
int device_count();

struct Where {
  int device;
  void* stream;               // a cudaStream_t
  bool programmatic = false;  // the launch may begin while the one before it is ending; sm_90 and later
};

struct Scratch {
  std::size_t data = 0;      // bytes
  std::size_t counters = 0;  // bytes, zero when first given and left zero
};

// The enqueued call, or the CUDA runtime's sentence about why it was not; null is success. The pointers that a call
// uses are device addresses. The host waits for nothing.
const char* run_forward(const spec::ForwardCall& call, const Where& where);

// A device's scratch for a call where its operands lie, or `anywhere`: wherever they may. `data` and `counters` in
// run_backward are as large as the first, and aligned to 16 bytes.
const char* backward_scratch(const spec::BackwardCall& call, int device, bool anywhere, Scratch& scratch);
const char* run_backward(const spec::BackwardCall& call, const Where& where, void* data, void* counters);

}  // namespace truenorm::cuda
