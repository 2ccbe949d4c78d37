// The backward in which rows and columns go apart: any rows, any width.
#pragma once

#include "cuda/device/dependent.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/kernels/backward_columns.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "cuda/tuning/split.hpp"

namespace truenorm::cuda {

// visit_rows(i) and visit_slab(i) for this thread block's share: one for each thread block, rows first. With a counter
// it is a cooperative launch of any size, which goes over slabs, and then over rows.
template <class VisitRows, class VisitSlab>
__device__ __forceinline__ void split_blocks(const SplitArgs& a, const VisitRows& visit_rows,
                                             const VisitSlab& visit_slab) {
  const bool ordered = a.counter != nullptr;
  bool rows = !ordered && blockIdx.x < a.row_blocks;
  unsigned int i = rows || ordered ? blockIdx.x : blockIdx.x - a.row_blocks;
  while (true) {
    if (rows) {
      if (i < a.row_blocks) visit_rows(i);
    } else {
      if (i < a.slabs) visit_slab(static_cast<int>(i));
    }
    if (__builtin_expect(!ordered, true)) return;
    i += gridDim.x;
    if (!rows && i >= a.slabs) {
      grid_arrive(a.counter, gridDim.x);
      grid_wait(a.counter, gridDim.x);
      rows = true;
      i = blockIdx.x;
    }
    if (rows && i >= a.row_blocks) return;
    __syncthreads();
  }
}

// Slabs of dweight, then of dbias: those of either that is asked for.
template <Type kType, bool kLayer, bool kWhole>
__device__ __forceinline__ void one_of_columns(const SplitArgs& a, int i, float* shared) {
  const int of_weight = static_cast<int>(a.slabs_of_weight);
  if (i < of_weight) {
    backward_columns<kType, kLayer, kWhole, false>(a, i, shared);
  } else {
    backward_columns<kType, kLayer, kWhole, true>(a, i - of_weight, shared);
  }
}

template <Type kType, int C, bool kLayer, bool kWhole>
__global__ void __launch_bounds__(kSplitThreads, split_blocks_at_once(C, kType == Type::f32, kWhole))
    backward_split_kernel(const __grid_constant__ SplitArgs a) {
  begin_kernel(a.early, a.n, a.weight);
  extern __shared__ float4 split_shared[];
  float* const shared = reinterpret_cast<float*>(split_shared);
  split_blocks(
      a, [&](unsigned int block) { backward_rows<kType, C, kLayer, kWhole>(a, block, shared); },
      [&](int slab) { one_of_columns<kType, kLayer, kWhole>(a, slab, shared); });
}

// A row too long for registers, by one thread block of kWideThreads, which goes over it twice. Its first tiles stay in
// shared memory, all of them asked for at once; of what is read twice some tiles are under way together.
template <Type kType, bool kLayer, bool kWhole>
__device__ __forceinline__ void backward_wide_row(const SplitArgs& a, std::int64_t r, float* shared) {
  constexpr int G = kWhole ? kBackwardTiles : 1;
  const int thread = thread_index(), first = thread * kChunk;
  const int n = a.n, tiles = (n + kTile - 1) / kTile, cached = a.cached;
  if (!a.dy.present) return pass_through(a, r, first, kTile, tiles);
  const std::byte *const dy = split_row<kWhole>(a.dy, a.call.dy, r), *const s = split_row<kWhole>(a.s, a.call.s, r);
  std::byte* const kept = reinterpret_cast<std::byte*>(shared) + wide_shared_bytes(2);
  const WideCache<kType> kept_dy(kept, thread), kept_s(kept + cached * WideCache<kType>::kBytes, thread);
  if constexpr (kWhole) {
    for (int tile = 0; tile < cached; tile += G) {
      kept_dy.template copy<G>(a.dy.type, dy, n, tile);
      kept_s.template copy<G>(a.s.type, s, n, tile);
      copies_commit();
    }
  }
  RowSlopes of{};
  of.rstd = a.rstd[r];
  if constexpr (kLayer) of.mean = a.mean[r];

  PackedVec<kWhole> weight;  // a tile ahead
  const auto load = [&](int tile, Chunk<kType>(&g)[G], Chunk<kType>(&v)[G]) {
    if (kWhole && tile < cached) {
      kept_dy.load(a.dy.type, n, tile, g);
      kept_s.load(a.s.type, n, tile, v);
    } else {
      load_chunks<kType, kWhole>(a.dy.type, dy, n, tile * kTile + first, kTile, g);
      load_chunks<kType, kWhole>(a.s.type, s, n, tile * kTile + first, kTile, v);
    }
  };
  const auto take_weights = [&](int column, float(&w)[kChunk]) {
    weight.weights(a.weight, a.offset, w);
    weight.load(a.weight, n, column + kTile);
  };

  constexpr int kSums = kLayer ? 2 : 1;
  WideSums<kSums> sums(shared, thread);
  weight.load(a.weight, n, first);
  for (int tile = 0; tile < tiles; tile += G) {
    Chunk<kType> g[G], v[G];
    if (kWhole && tile < cached) kept_dy.wait((cached - 1 - tile) / G);
    load(tile, g, v);
    float part[kSums * G];
#pragma unroll
    for (int k = 0; k < G; ++k) {
      const int column = (tile + k) * kTile + first;
      float w[kChunk];
      take_weights(column, w);
      sum_terms<kType, kLayer, kWhole>(g[k], v[k], w, of.mean, n - column, part[k], part[(kSums - 1) * G + k]);
    }
    sums.template add<G>(part);
  }
  weight.load(a.weight, n, first);
  float total[kSums];
  sums.finish(total);
  finish_slopes<kLayer>(total[0], total[kSums - 1], static_cast<float>(n), of);
  const std::byte* const ds = a.ds.present ? split_row<kWhole>(a.ds, a.call.ds, r) : nullptr;
  for (int tile = 0; tile < tiles; tile += G) {
    const int begin = tile * kTile + first;
    Chunk<kType> g[G], v[G], beside[G];
    if (ds != nullptr) load_chunks<kType, kWhole>(a.ds.type, ds, n, begin, kTile, beside);
    load(tile, g, v);
#pragma unroll
    for (int k = 0; k < G; ++k) {
      const int column = begin + k * kTile;
      float w[kChunk], d[kChunk], dx[kChunk];
      take_weights(column, w);
      beside[k].values(d);
      gradient_values<kType, kLayer>(
          g[k], v[k], w, of, [&](int i) { return ds != nullptr ? d[i] : spec::kNoAddend; }, dx);
      store_gradient<kType, kWhole>(a, r, n, column, true, dx);
    }
  }
}

template <Type kType, bool kLayer, bool kWhole>
__global__ void __launch_bounds__(kWideThreads, backward_wide_blocks_at_once(kType == Type::f32, kWhole))
    backward_split_wide_kernel(const __grid_constant__ SplitArgs a) {
  begin_kernel(a.early, a.n, a.weight);
  extern __shared__ float4 wide_shared[];
  float* const shared = reinterpret_cast<float*>(wide_shared);
  split_blocks(
      a, [&](unsigned int row) { backward_wide_row<kType, kLayer, kWhole>(a, row, shared); },
      [&](int slab) { one_of_columns<kType, kLayer, kWhole>(a, slab, shared); });
}

}  // namespace truenorm::cuda
