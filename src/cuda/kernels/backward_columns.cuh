// The weight gradients of a slab of columns, all rows, made by one thread block: no exchange with any other.
//
// A warp has `chunks` lanes side by side for the columns, a power of two, and 32 / chunks pairs of neighbouring strips.
#pragma once

#include "cuda/device/column_trees.cuh"
#include "cuda/device/weights.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "cuda/tuning/split.hpp"
#include "spec/norm.hpp"
#include "spec/order.hpp"

namespace truenorm::cuda {

// dbias or dweight of columns [slab * chunks * kChunk, ...). The thread block has a power of two of warps, at most
// kColumnWarps, and at least chunks * kChunk threads.
template <Type kType, bool kLayer, bool kWhole, bool kBias>
__device__ __forceinline__ void backward_columns(const spec::BackwardCall& p, int chunks, std::int64_t slab,
                                                 float* shared) {
  const int thread = thread_index(), lane = thread & 31, warp = thread >> 5, warps = blockDim.x >> 5;
  const int columns = chunks * kChunk;
  const int n = static_cast<int>(p.n), begin = static_cast<int>(slab) * columns;
  const int column = begin + (lane & (chunks - 1)) * kChunk;
  const std::int64_t strips = spec::strips(n);
  const std::int64_t used = p.dy.present ? (p.m < strips ? p.m : strips) : 0;
  const int rows_of_lanes = 32 / chunks;
  const std::int64_t in_group = std::int64_t{2} * warps * rows_of_lanes;
  GroupTree sums(shared + warps * columns + thread, columns);  // of the threads that have a column

#pragma unroll 1
  for (std::int64_t group = 0; group < used; group += in_group) {
    const std::int64_t strip = group + 2 * (warp * rows_of_lanes + lane / chunks);
    float sum[2][kChunk] = {};
#pragma unroll 1
    for (std::int64_t r = strip; r < p.m && strip < strips; r += strips) {
      Chunk<kType> dy[2][1], s[kBias ? 1 : 2][1];
      float mean[2] = {}, rstd[2] = {};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const bool there = r + k < p.m;
        const std::int64_t row = there ? r + k : r;
        load_chunks<kType, kWhole>(p.dy.type, row_at<kWhole>(p.dy, row), there ? n : 0, column, 0, dy[k]);
        if constexpr (!kBias) {
          load_chunks<kType, kWhole>(p.s.type, row_at<kWhole>(p.s, row), there ? n : 0, column, 0, s[k]);
          rstd[k] = p.rstd[row];
          if constexpr (kLayer) mean[k] = p.mean[row];
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (r + k >= p.m) continue;
        if constexpr (kBias) {
          float g[kChunk];
          dy[k][0].values(g);
          add_to_bias(g, sum[k]);
        } else {
          float g[kChunk], d[kChunk], t[kChunk];
          products<kType, kLayer>(dy[k][0], s[k][0], mean[k], g, d, t);
          add_to_weight<kLayer>(p, g, d, t, rstd[k], sum[k]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[0][i] = Scalar::add(sum[0][i], sum[1][i]);
    __syncthreads();  // what the group before left has been read
    tree_over_lanes(sum[0], chunks, shared + warp * columns);
    __syncthreads();
    if (thread < columns) sums.push(tree_of_column(shared + thread, warps, columns));
  }
  const Vec& out = kBias ? p.dbias : p.dweight;
  if (thread < columns && begin + thread < n) store1(out.type, out.data, begin + thread, sums.finish());
}

}  // namespace truenorm::cuda
