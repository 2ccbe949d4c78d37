// The last step of the weight gradients: the tree over all partial sums, each thread block taking columns of its own.
#pragma once

#include "cuda/device/column_trees.cuh"
#include "spec/call.hpp"

namespace truenorm::cuda {

// Columns that one of `blocks` thread blocks sums: a multiple of eight, two lanes' worth of four.
__host__ __device__ constexpr int final_columns(int n, int blocks) {
  const int each = (n + blocks - 1) / blocks;
  return (each + 7) / 8 * 8;
}

// The tree over rows [first, first + K) of `partials`, four columns; rows at or past `count` are +0. K <= 8 at a time.
template <int K>
__device__ __forceinline__ void tree_of_rows(const float* partials, std::int64_t stride, int first, int count,
                                             float (&sum)[4]) {
  float4 v[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    v[k] = first + k < count ? __ldcg(reinterpret_cast<const float4*>(partials + (first + k) * stride))
                             : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  sum[0] = tree<K>([&](int k) { return v[k].x; });
  sum[1] = tree<K>([&](int k) { return v[k].y; });
  sum[2] = tree<K>([&](int k) { return v[k].z; });
  sum[3] = tree<K>([&](int k) { return v[k].w; });
}

// out[column] = the tree over partials[0..count)[column], rounded, for this thread block's columns. Rows of `partials`
// are `stride` floats, a multiple of eight; `count` is at most 128. `shared`: 16 * 8 * (warps of the thread block)
// bytes.
__device__ __forceinline__ void final_sum(const spec::Vec& out, const float* partials, std::int64_t stride, int count,
                                          int n, float* shared) {
  constexpr int kRowsInWarp = 16;  // two lanes side by side
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int columns = final_columns(n, gridDim.x);
  const int begin = static_cast<int>(blockIdx.x) * columns;
  if (begin >= n) return;
  int parts = 1;  // warps that share a column: neighbours by rows
  const int pairs = columns / 8;
  while (parts * 2 * pairs <= warps && parts * kRowsInWarp < count) parts *= 2;
  int each = 1;  // rows of a lane
  while (each * parts * kRowsInWarp < count) each *= 2;
  const int at_once = warps / parts;
  for (int first_pair = 0; first_pair < pairs; first_pair += at_once) {
    const int pair = first_pair + warp / parts, part = warp % parts;
    const int column = begin + pair * 8 + (lane & 1) * 4;
    const bool busy = warp < at_once * parts && pair < pairs;
    if (busy) {
      const int row = (part * kRowsInWarp + lane / 2) * each;
      const float* const from = partials + (column < n ? column : 0);
      float s[4];
      switch (each) {
        case 1: tree_of_rows<1>(from, stride, row, count, s); break;
        case 2: tree_of_rows<2>(from, stride, row, count, s); break;
        case 4: tree_of_rows<4>(from, stride, row, count, s); break;
        default: tree_of_rows<8>(from, stride, row, count, s); break;
      }
      tree_over_lanes(s, 2, shared + warp * 8);
    }
    __syncthreads();
    const int which = threadIdx.x >> 3, mine = begin + (first_pair + which) * 8 + (threadIdx.x & 7);
    if (which < at_once && first_pair + which < pairs && mine < n) {
      const float sum = tree_of_column(shared + which * parts * 8 + (threadIdx.x & 7), parts, 8);
      store1(out.type, out.data, mine, Scalar::add(sum, 0.0f));
    }
    __syncthreads();
  }
}

}  // namespace truenorm::cuda
