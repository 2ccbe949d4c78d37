// Sums of rows too long for registers: a thread block of kWideThreads goes over a row tile by tile, a chunk a thread.
#pragma once

#include "cuda/device/reduce.cuh"
#include "cuda/tuning/rows.hpp"

namespace truenorm::cuda {

inline constexpr int kWideWarps = kWideThreads / 32;
static_assert(kTile == kWideThreads * kChunk);

// V row sums. For each tile in order: add(); after the last: finish(). All threads of the thread block call alike.
template <int V>
class WideSums {
 public:
  // `shared`: V * (kBlocks + kTops) floats.
  __device__ __forceinline__ explicit WideSums(float* shared) : shared_(shared) {}

  // `s`: this lane's part of its warp's block in this tile.
  __device__ __forceinline__ void add(float (&s)[V]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (tile_ == 0) __syncthreads();  // the segment before has been read
#pragma unroll
    for (int v = 0; v < V; ++v) {
      s[v] = warp_tree(s[v]);
      if (lane == 0) shared_[v * kBlocks + tile_ * kWideWarps + warp] = s[v];
    }
    if (++tile_ == kTilesPerSegment) close();
  }

  __device__ __forceinline__ void finish(float (&out)[V]) {
    if (tile_ > 0) close();
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = sums_[v].finish();
  }

 private:
  static constexpr int kBlocks = kWideWarps * kTilesPerSegment, kTops = kBlocks / 32;
  static_assert(kTops == 32);

  __device__ __forceinline__ void close() {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float* const tops = shared_ + V * kBlocks;
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) {
      for (int top = warp; top < kTops; top += kWideWarps) {
        const int block = top * 32 + lane;
        const float part = warp_tree(block < tile_ * kWideWarps ? shared_[v * kBlocks + block] : 0.0f);
        if (lane == 0) tops[v * kTops + top] = part;
      }
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) sums_[v].push(warp_tree(tops[v * kTops + lane]));
    tile_ = 0;
  }

  float* shared_;
  int tile_ = 0;
  spec::TreeSum sums_[V];
};

}  // namespace truenorm::cuda
