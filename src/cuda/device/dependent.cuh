// Programmatic dependent launch: a kernel may begin while the one before it in the stream is ending, and lets the one
// after it do so. Of sm_90 and later; in a usual launch nothing is waited for.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "spec/call.hpp"

namespace truenorm::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasDependentLaunch = true;
#else
inline constexpr bool kHasDependentLaunch = false;
#endif

// The next launch may begin once every thread block of this one has said so or has ended. It is promised nothing by
// that: it waits itself for what is written here.
__device__ __forceinline__ void launch_dependents() {
  if constexpr (kHasDependentLaunch) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Until the launch before has finished, and all that it wrote can be seen.
__device__ __forceinline__ void wait_for_launch_before() {
  if constexpr (kHasDependentLaunch) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Asks for the line that holds `p`. Its value is not used, and what is written there later is seen by later reads.
__device__ __forceinline__ void prefetch_to_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Comes first in every kernel: nothing of global memory may be read or written before it, be it scratch or an output.
// `early`: the launch may have begun early, so that there is time to ask for the weight, which the launch before may
// yet be writing.
//
// The next launch may begin at once: all thread blocks of this one are on the device by then, or have ended, so that it
// takes no place that a thread block here waits for.
__device__ __forceinline__ void begin_kernel(const spec::Vec& weight, std::int64_t n, bool early) {
  if (kHasDependentLaunch && early && weight.present) {
    constexpr int kSector = 32;
    const std::int64_t bytes = n * spec::size_of(weight.type);
    for (std::int64_t at = std::int64_t{threadIdx.x} * kSector; at < bytes; at += std::int64_t{blockDim.x} * kSector) {
      prefetch_to_l2(weight.data + at);
    }
  }
  wait_for_launch_before();
  launch_dependents();
}

}  // namespace truenorm::cuda
