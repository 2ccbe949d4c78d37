// Bulk copies from global to shared memory that arrive at a barrier, and clusters of thread blocks: PTX of sm_90 and
// later.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace truenorm::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulk = true;
#else
inline constexpr bool kHasBulk = false;
#endif

// Completes a phase when one thread has arrived and all bytes that it expects have.
using Barrier = unsigned long long;

__device__ __forceinline__ unsigned int shared_address(const void* p) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(Barrier* b, unsigned int arrivals) {
  if constexpr (kHasBulk) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
  }
}

// Makes initialised barriers visible to bulk copies.
__device__ __forceinline__ void barrier_init_done() {
  if constexpr (kHasBulk) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* b) {
  if constexpr (kHasBulk) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
  }
}

__device__ __forceinline__ void barrier_arrive_expecting(Barrier* b, unsigned int bytes) {
  if constexpr (kHasBulk) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
  }
}

// `parity`: of the phase waited for, 0 for the first.
__device__ __forceinline__ void barrier_wait(Barrier* b, unsigned int parity) {
  if constexpr (kHasBulk) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\n"
        "bra again;\n"
        "done:\n"
        "}" ::"r"(shared_address(b)),
        "r"(parity)
        : "memory");
  }
}

// `bytes`, `to` and `from` are multiples of 16.
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned int bytes, Barrier* b) {
  if constexpr (kHasBulk) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(b))
                 : "memory");
  }
}

// Lets bulk loads, after a barrier, write where this thread has read and written shared memory by ordinary means.
__device__ __forceinline__ void bulk_load_over_stores() {
  if constexpr (kHasBulk) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Clusters. Without one, a thread block is a cluster by itself.

__device__ __forceinline__ unsigned int cluster_rank() {
  unsigned int rank = 0;
  if constexpr (kHasBulk) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier of all threads of the cluster. All of a warp's threads come together.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  if constexpr (kHasBulk) {
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }
}

// Stores to the same place in another thread block's shared memory, and brings its barrier there four bytes nearer.
__device__ __forceinline__ void store_at_rank(float* place, Barrier* b, unsigned int rank, float v) {
  if constexpr (kHasBulk) {
    unsigned int to, barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(place)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(b)), "r"(rank));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(v)), "r"(barrier)
                 : "memory");
  }
}

}  // namespace truenorm::cuda
