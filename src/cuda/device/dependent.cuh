// Programmatic dependent launch, of sm_90 and later: a kernel may begin while the one before it in the stream is
// ending, and lets the one after it do so.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "spec/call.hpp"

namespace truenorm::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasDependentLaunch = true;
#else
inline constexpr bool kHasDependentLaunch = false;
#endif

// Until the launch before has finished, and all that it wrote can be seen. In a launch that could not begin early it
// returns at once. Loads after it may not be of the kind that takes memory to be constant (__ldg): such a load may be
// moved to before it.
__device__ __forceinline__ void wait_for_launch_before() {
  if constexpr (kHasDependentLaunch) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next launch may begin once every thread block of this one has said so or has ended. It is promised nothing by
// that: it waits itself for what is written here.
__device__ __forceinline__ void launch_dependents() {
  if constexpr (kHasDependentLaunch) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Asks for so many bytes to come to the L2 cache, each sector once in the whole launch, by the thread blocks that begin
// first. No value is read: what the launch before is still writing may be asked for too, for L2 is where its stores go.
__device__ __forceinline__ void prefetch_to_l2(const std::byte* data, std::int64_t bytes) {
  constexpr int kSector = 32;
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = thread * kSector; at < bytes; at += threads * kSector) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(data + at));
  }
}

// Out of line, so that the code of other launches stays close together.
__device__ __noinline__ inline void begin_early(const std::byte* weight, std::int64_t weight_bytes,
                                                const std::byte* bias, std::int64_t bias_bytes) {
  prefetch_to_l2(weight, weight_bytes);
  prefetch_to_l2(bias, bias_bytes);
  wait_for_launch_before();
  launch_dependents();
}

// Comes first in every kernel: nothing of global memory, be it an input, an output or scratch, may be read or written
// before it. `early`: the call has asked for it; other launches go on at once.
//
// The next launch is let go right after the wait. It begins when the last thread block has come this far: all thread
// blocks are on the device then, or have ended, so that those which wait for each other lose no place to it. Not before
// the wait, so that no more than one launch holds places while it waits.
__device__ __forceinline__ void begin_kernel(bool early, std::int64_t n, const spec::Vec& weight,
                                             const spec::Vec& bias = {}) {
  if (!kHasDependentLaunch || !early) return;
  const auto bytes = [&](const spec::Vec& v) { return v.present ? n * spec::size_of(v.type) : 0; };
  begin_early(weight.data, bytes(weight), bias.data, bytes(bias));
}

}  // namespace truenorm::cuda
