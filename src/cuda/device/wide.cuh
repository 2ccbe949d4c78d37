// Rows too long for registers: a thread block of kWideThreads goes over a row tile by tile, a chunk a thread. Their
// sums, and shared memory for their first tiles.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/tuning/rows.hpp"

namespace truenorm::cuda {

inline constexpr int kWideWarps = kWideThreads / 32;
static_assert(kTile == kWideThreads * kChunk);

// V row sums. For all tiles in order, K at a time: add(); after the last: finish(). All threads of the thread block
// call alike.
template <int V>
class WideSums {
 public:
  // `shared`: V * (kBlocks + kTops) floats.
  __device__ __forceinline__ WideSums(float* shared, int thread)
      : shared_(shared), lane_(thread & 31), warp_(thread >> 5) {}

  // `s`: this lane's parts of its warp's blocks in the next K tiles, sum after sum; +0 in tiles past the row's end.
  template <int K>
  __device__ __forceinline__ void add(float (&s)[V * K]) {
    static_assert(kTilesPerSegment % K == 0);
    if (tile_ == 0) __syncthreads();  // the segment before has been read
    lane_trees<V * K>(s, lane_, 32);
    if (lane_ < V * K) shared_[lane_ / K * kBlocks + (tile_ + lane_ % K) * kWideWarps + warp_] = s[0];
    tile_ += K;
    if (tile_ == kTilesPerSegment) close();
  }

  __device__ __forceinline__ void finish(float (&out)[V]) {
    if (tile_ > 0) close();
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = GroupTree(levels_ + v, V, segments_).finish();
  }

 private:
  static constexpr int kBlocks = kWideWarps * kTilesPerSegment, kTops = kBlocks / 32;
  static constexpr int kLevels = 16;  // of the tree over segments
  static_assert(kTops == 32);

  __device__ __forceinline__ void close() {
    float* const tops = shared_ + V * kBlocks;
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) {
      for (int top = warp_; top < kTops; top += kWideWarps) {
        const int block = top * 32 + lane_;
        const float part = warp_tree(block < tile_ * kWideWarps ? shared_[v * kBlocks + block] : 0.0f);
        if (lane_ == 0) tops[v * kTops + top] = part;
      }
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) GroupTree(levels_ + v, V, segments_).push(warp_tree(tops[v * kTops + lane_]));
    ++segments_;
    tile_ = 0;
  }

  float* shared_;
  int lane_, warp_, tile_ = 0;
  unsigned int segments_ = 0;
  float levels_[kLevels * V];
};

// The first tiles of a row in shared memory, `tile` being the first of G in each call. A thread reads and writes its
// own chunks only, so that no barrier is needed but a warp's.
template <Type kType>
class WideCache {
 public:
  static constexpr int kBytes = kTile * (kType == Type::f32 ? 4 : 2);  // a tile

  __device__ __forceinline__ WideCache(std::byte* memory, int thread) : memory_(memory), thread_(thread) {}

  // Asks for G tiles of a whole row, which are `type` then; the thread has read what was there.
  template <int G>
  __device__ __forceinline__ void copy(Type type, const std::byte* row, int n, int tile) const {
    if (kType == Type::f32 && type == Type::f32) {
      // A chunk is two copies: neighbouring lanes ask for neighbouring ones, and each other's.
      const int lane = thread_ & 31, column = tile * kTile + (thread_ - lane) * kChunk + lane * 4;
      const unsigned int to = shared_address(memory_) + static_cast<unsigned>(column) * 4;
      const std::byte* const from = row + std::int64_t{column} * 4;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2 * G; ++i) {
        const int step = i / 2 * kTile + i % 2 * 128;
        if (column + step < n) copy_async(to + step * 4, from + step * 4);
      }
    } else {
      const int column = tile * kTile + thread_ * kChunk;
      const unsigned int to = shared_address(own(tile));
      const std::byte* const from = row + std::int64_t{column} * 2;
#pragma unroll
      for (int k = 0; k < G; ++k) {
        if (column + k * kTile < n) copy_async(to + k * kBytes, from + k * kTile * 2);
      }
    }
  }

  // Waits for copies, all of this thread's groups but the last `but`.
  __device__ __forceinline__ void wait(int but) const {
    copies_wait_but(but);
    if constexpr (kType == Type::f32) __syncwarp();
  }

  template <int G>
  __device__ __forceinline__ void load(Type type, int n, int tile, Chunk<kType> (&v)[G]) const {
#pragma unroll
    for (int k = 0; k < G; ++k) {
      const bool there = (tile + k) * kTile + thread_ * kChunk < n;
      v[k] = there ? load_whole<kType>(type, own(tile + k)) : Chunk<kType>{};
    }
  }

  // This thread's chunk of one tile, rounded to kType.
  __device__ __forceinline__ void store(int n, int tile, const float (&v)[kChunk]) const {
    if (tile * kTile + thread_ * kChunk < n) store_whole<kType>(Type::f32, own(tile), v);
  }

 private:
  __device__ __forceinline__ std::byte* own(int tile) const {
    return memory_ + tile * kBytes + thread_ * (kBytes / kWideThreads);
  }

  std::byte* memory_;
  int thread_;
};

}  // namespace truenorm::cuda
