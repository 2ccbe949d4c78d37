// All thread blocks of a cooperative launch meet, once, by one counter that is zero before and after.
#pragma once

#include <cuda_runtime.h>

namespace truenorm::cuda {

// Everything that this thread block wrote before is seen by all thread blocks after grid_wait. One thread of each
// thread block counts it in; the counter wraps to zero when the last has also counted itself out.
__device__ __forceinline__ void grid_arrive(unsigned int* counter, unsigned int blocks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(2 * blocks - 1) : "memory");
  }
}

__device__ __forceinline__ void grid_wait(unsigned int* counter, unsigned int blocks) {
  if (threadIdx.x == 0) {
    unsigned int count;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    } while (count < blocks);
    atomicInc(counter, 2 * blocks - 1);
  }
  __syncthreads();
}

}  // namespace truenorm::cuda
