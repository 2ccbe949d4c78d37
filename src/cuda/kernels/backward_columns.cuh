// The weight gradients of a slab of columns, all rows, made by one thread block: no exchange with any other.
//
// A warp has `chunks` lanes side by side for the columns, a power of two, and 32 / chunks pairs of neighbouring strips.
#pragma once

#include "cuda/device/column_trees.cuh"
#include "cuda/device/weights.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "spec/norm.hpp"
#include "spec/order.hpp"

namespace truenorm::cuda {

// spec::TreeSum over groups of strips, its levels `stride` floats apart in shared memory.
class GroupTree {
 public:
  static constexpr int kLevels = 16;
  __device__ __forceinline__ GroupTree(float* levels, int stride) : levels_(levels), stride_(stride) {}
  __device__ __forceinline__ void push(float v) {
    int level = 0;
    for (; (count_ >> level) & 1u; ++level) v = Scalar::add(levels_[level * stride_], v);
    levels_[level * stride_] = v;
    ++count_;
  }
  __device__ __forceinline__ float finish() const {
    float sum = 0.0f;
    bool first = true;
    for (int level = 0; (count_ >> level) != 0; ++level) {
      if (((count_ >> level) & 1u) == 0) continue;
      sum = first ? levels_[level * stride_] : Scalar::add(levels_[level * stride_], sum);
      first = false;
    }
    return Scalar::add(sum, 0.0f);
  }

 private:
  float* levels_;
  int stride_;
  unsigned int count_ = 0;
};

// What backward_columns needs of shared memory: for each gradient a row for each warp, and the levels of a GroupTree.
constexpr std::size_t columns_shared_bytes(int threads, int chunks) {
  return sizeof(float) * 2 * static_cast<std::size_t>(threads / 32 + GroupTree::kLevels) * chunks * kChunk;
}

// Columns [slab * chunks * kChunk, ...). The thread block has a power of two of warps, at most kColumnWarps, and at
// least chunks * kChunk threads.
template <Type kType, bool kLayer, bool kWhole>
__device__ __forceinline__ void backward_columns(const spec::BackwardCall& p, int chunks, std::int64_t slab,
                                                 float* shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int columns = chunks * kChunk;
  const int n = static_cast<int>(p.n), begin = static_cast<int>(slab) * columns;
  const int column = begin + (lane & (chunks - 1)) * kChunk;
  const std::int64_t strips = spec::strips(n);
  const std::int64_t used = p.dy.present ? (p.m < strips ? p.m : strips) : 0;
  const std::int64_t in_group = std::int64_t{2} * warps * (32 / chunks);
  float* const of_weight = shared;
  float* const of_bias = of_weight + warps * columns;
  float* const levels = of_bias + warps * columns + threadIdx.x;  // of the threads that have a column
  GroupTree dweight_sum(levels, columns), dbias_sum(levels + GroupTree::kLevels * columns, columns);

  for (std::int64_t group = 0; group < used; group += in_group) {
    const std::int64_t strip = group + 2 * (warp * (32 / chunks) + lane / chunks);
    float dweight[2][kChunk] = {}, dbias[2][kChunk] = {};
#pragma unroll 1
    for (std::int64_t r = strip; r < p.m; r += strips) {
      Chunk<kType> dy[2][1], s[2][1];
      float mean[2] = {}, rstd[2] = {};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const bool there = r + k < p.m;
        const std::int64_t row = there ? r + k : r;
        load_chunks<kType, kWhole>(p.dy.type, row_at<kWhole>(p.dy, row), there ? n : 0, column, 0, dy[k]);
        if (p.dweight.present) {
          load_chunks<kType, kWhole>(p.s.type, row_at<kWhole>(p.s, row), there ? n : 0, column, 0, s[k]);
          rstd[k] = __ldg(p.rstd + row);
          if constexpr (kLayer) mean[k] = __ldg(p.mean + row);
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (r + k < p.m) {
          float g[kChunk], d[kChunk], t[kChunk];
          products<kType, kLayer>(dy[k][0], s[k][0], mean[k], g, d, t);
          add_row<kType, kLayer>(p, g, d, t, rstd[k], dweight[k], dbias[k]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      dweight[0][i] = Scalar::add(dweight[0][i], dweight[1][i]);
      dbias[0][i] = Scalar::add(dbias[0][i], dbias[1][i]);
    }
    __syncthreads();  // what the group before left has been read
    if (p.dweight.present) tree_over_lanes(dweight[0], chunks, of_weight + warp * columns);
    if (p.dbias.present) tree_over_lanes(dbias[0], chunks, of_bias + warp * columns);
    __syncthreads();
    if (threadIdx.x < columns) {
      if (p.dweight.present) dweight_sum.push(tree_of_column(of_weight + threadIdx.x, warps, columns));
      if (p.dbias.present) dbias_sum.push(tree_of_column(of_bias + threadIdx.x, warps, columns));
    }
  }
  const int mine = begin + threadIdx.x;
  if (threadIdx.x < columns && mine < n) {
    if (p.dweight.present) store1(p.dweight.type, p.dweight.data, mine, dweight_sum.finish());
    if (p.dbias.present) store1(p.dbias.type, p.dbias.data, mine, dbias_sum.finish());
  }
}

}  // namespace truenorm::cuda
