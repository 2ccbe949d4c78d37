// The weight gradients of a slab of columns, all rows, made by one thread block: no exchange with any other.
//
// A warp has 4 to 32 lanes side by side for the columns, a power of two, and as many pairs of neighbouring strips as it
// has such runs of lanes.
#pragma once

#include <type_traits>

#include "cuda/device/column_trees.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "cuda/tuning/split.hpp"

namespace truenorm::cuda {

// dbias or dweight of the slab's columns. The thread block has a power of two of warps, at most kColumnWarps, and a
// thread for each column.
template <Type kType, bool kLayer, bool kWhole, bool kBias>
__device__ __forceinline__ void backward_columns(const SplitArgs& a, int slab, float* shared) {
  using Row = std::conditional_t<kWhole, int, std::int64_t>;
  const int thread = thread_index(), lane = thread & 31, warp = thread >> 5, warps = blockDim.x >> 5;
  const int chunks = 1 << a.log_chunks, columns = chunks * kChunk, n = a.n, begin = slab * columns;
  const int column = begin + (lane & (chunks - 1)) * kChunk;
  const int in_group = 2 * warps * (32 >> a.log_chunks), used = a.used;
  const auto m = static_cast<Row>(a.m);
  // Groups of strips, where there are several: of the threads that have a column.
  GroupTree groups(shared + warps * columns + thread, columns);
  float sum_of_column = 0.0f;

#pragma unroll 1
  for (int group = 0; group < used; group += in_group) {
    const int strip = group + 2 * (thread >> a.log_chunks);
    float sum[2][kChunk] = {};
#pragma unroll 1
    for (Row r = strip; r < m && strip < a.strips; r += a.strips) {
      Chunk<kType> dy[2][1], s[kBias ? 1 : 2][1];
      float mean[2] = {}, rstd[2] = {};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const bool there = r + k < m;
        const Row row = there ? r + k : r;
        load_chunks<kType, kWhole>(a.dy.type, split_row<kWhole>(a.dy, a.call.dy, row), there ? n : 0, column, 0, dy[k]);
        if constexpr (!kBias) {
          load_chunks<kType, kWhole>(a.s.type, split_row<kWhole>(a.s, a.call.s, row), there ? n : 0, column, 0, s[k]);
          rstd[k] = a.rstd[row];
          if constexpr (kLayer) mean[k] = a.mean[row];
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (r + k >= m) continue;
        float g[kChunk];
        if constexpr (kBias) {
          dy[k][0].values(g);
          add_to_bias(g, sum[k]);
        } else {
          float d[kChunk], t[kChunk];
          products<kType, kLayer>(dy[k][0], s[k][0], mean[k], g, d, t);
          add_to_weight<kLayer>(a.round_xhat, a.xhat_type, g, d, t, rstd[k], sum[k]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[0][i] = Scalar::add(sum[0][i], sum[1][i]);
#pragma unroll 1
    for (int mask = chunks; mask < 32; mask *= 2) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum[0][i] = Scalar::add(sum[0][i], from_lane_xor(sum[0][i], mask));
    }
    if (group > 0) __syncthreads();  // what the group before left has been read
    if (lane < chunks) {             // the first halves of all lanes, then the second
      auto* const to = reinterpret_cast<float4*>(shared + warp * columns) + lane;
      to[0] = make_float4(sum[0][0], sum[0][1], sum[0][2], sum[0][3]);
      to[chunks] = make_float4(sum[0][4], sum[0][5], sum[0][6], sum[0][7]);
    }
    __syncthreads();
    if (thread < columns) {
      sum_of_column = tree_of_column(shared + thread, warps, columns);
      if (used > in_group) groups.push(sum_of_column);
    }
  }
  if (thread >= columns) return;
  const float total = used > in_group ? groups.finish() : Scalar::add(sum_of_column, 0.0f);
  const int half = columns / 2, in_half = thread < half ? thread : thread - half;
  const int out = begin + (in_half >> 2) * kChunk + (thread < half ? 0 : 4) + (in_half & 3);
  const Vec& to = kBias ? a.dbias : a.dweight;
  if (out < n) store1(to.type, to.data, out, total);
}

}  // namespace truenorm::cuda
