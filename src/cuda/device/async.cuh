// Copies from global to shared memory that a thread need not wait for, barriers in shared memory, and clusters of
// thread blocks: PTX. Clusters are of sm_90 and later.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace truenorm::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasClusters = true;
#else
inline constexpr bool kHasClusters = false;
#endif

__device__ __forceinline__ unsigned int shared_address(const void* p) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(p));
}

// ---- Sixteen bytes, both places aligned to as many, to the shared address `to`.
__device__ __forceinline__ void copy_async(unsigned int to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The same where `wanted`, without a branch; kCached: by way of the first-level cache, for what others will ask for
// too.
template <bool kCached>
__device__ __forceinline__ void copy_async_if(bool wanted, unsigned int to, const void* from) {
  if constexpr (kCached) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], 16; }" ::"r"(to),
                 "l"(from), "r"(static_cast<unsigned int>(wanted))
                 : "memory");
  } else {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to),
                 "l"(from), "r"(static_cast<unsigned int>(wanted))
                 : "memory");
  }
}

// Sixteen bytes, of which only the first `bytes` are read, and zeros for the others.
template <bool kCached>
__device__ __forceinline__ void copy_part_async(unsigned int to, const void* from, int bytes) {
  if constexpr (kCached) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  }
}

// Four bytes, of which only the first `bytes` are read, and zeros for the others.
__device__ __forceinline__ void copy_part_of_word_async(unsigned int to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Four bytes.
__device__ __forceinline__ void copy_word_async(unsigned int to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all of this thread's groups but the last.
__device__ __forceinline__ void copies_wait_but_last() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

// Waits for all of this thread's groups but the last few: at most `but` of them, and at most kMost.
template <int kMost = 7>
__device__ __forceinline__ void copies_wait_but(int but) {
  if (kMost == 0 || but >= kMost) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
  } else if constexpr (kMost > 0) {
    copies_wait_but<kMost - 1>(but);
  }
}

// ---- Barriers in shared memory: a phase is complete when all arrivals, and all bytes that some of them expect, have
// come.
using Barrier = unsigned long long;

__device__ __forceinline__ void barrier_init(Barrier* b, unsigned int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}

// Lets another thread block of the cluster use initialised barriers.
__device__ __forceinline__ void barrier_init_done() {
  if constexpr (kHasClusters) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(b)) : "memory");
}

__device__ __forceinline__ void barrier_arrive_expecting(Barrier* b, unsigned int bytes) {
  if constexpr (kHasClusters) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
  }
}

// Lets copy_bytes_async use initialised barriers.
__device__ __forceinline__ void barrier_init_done_for_copies() {
  if constexpr (kHasClusters) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies `bytes`, a multiple of sixteen, from one multiple of sixteen to another in shared memory, and brings the
// barrier as many bytes nearer.
__device__ __forceinline__ void copy_bytes_async(unsigned int to, const void* from, int bytes, Barrier* b) {
  if constexpr (kHasClusters) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(shared_address(b))
                 : "memory");
  }
}

// `parity`: of the phase waited for, 0 for the first.
__device__ __forceinline__ void barrier_wait(Barrier* b, unsigned int parity) {
  const unsigned int at = shared_address(b);
  unsigned int done;
  do {
    if constexpr (kHasClusters) {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(at), "r"(parity)
                   : "memory");
    } else {
      asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(at), "r"(parity)
                   : "memory");
    }
  } while (done == 0);
}

// ---- Clusters. Without one, a thread block is a cluster by itself.

__device__ __forceinline__ unsigned int cluster_rank() {
  unsigned int rank = 0;
  if constexpr (kHasClusters) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier of all threads of the cluster. All of a warp's threads come together.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  if constexpr (kHasClusters) {
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }
}

// Stores to the same place in another thread block's shared memory, and brings its barrier there four bytes nearer.
__device__ __forceinline__ void store_at_rank(float* place, Barrier* b, unsigned int rank, float v) {
  if constexpr (kHasClusters) {
    unsigned int to, barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(place)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(b)), "r"(rank));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(v)), "r"(barrier)
                 : "memory");
  }
}

}  // namespace truenorm::cuda
