// The backward in which rows and columns go apart: any rows, any width.
#pragma once

#include "cuda/device/dependent.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/kernels/backward_columns.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "cuda/tuning/split.hpp"

namespace truenorm::cuda {

// What a launch is given of its plan.
struct SplitShape {
  RowShape rows;
  std::int64_t row_blocks = 0;
  std::int64_t slabs = 0;       // of both gradients
  std::int64_t slabs_each = 0;  // of one
  int chunks = 8;
  int cached = 0;                   // tiles of dy and s that a long row keeps
  bool early = false;               // the call may begin before the one before it has finished
  unsigned int* counter = nullptr;  // where dx is written over what the columns read, they go first; zero before, after
};

// visit_slab(i) and visit_rows(i) for this thread block's share. With a counter it is a cooperative launch of any size,
// else one thread block for each.
template <class VisitSlab, class VisitRows>
__device__ __forceinline__ void split_blocks(const SplitShape& shape, const VisitSlab& visit_slab,
                                             const VisitRows& visit_rows) {
  const bool ordered = shape.counter != nullptr;
  const std::int64_t block = blockIdx.x;
  const auto slab = static_cast<int>(ordered ? block : block - shape.row_blocks);
  for (int i = slab; i >= 0 && i < shape.slabs; i += static_cast<int>(gridDim.x)) {
    visit_slab(i);
    if (!ordered) return;
  }
  if (ordered) {
    grid_arrive(shape.counter, gridDim.x);
    grid_wait(shape.counter, gridDim.x);
  }
  for (std::int64_t i = block; i < shape.row_blocks; i += gridDim.x) {
    if (ordered) __syncthreads();
    visit_rows(i);
    if (!ordered) return;
  }
}

// Slabs of dweight, then of dbias: those of either that is asked for.
template <Type kType, bool kLayer, bool kWhole>
__device__ __forceinline__ void one_of_columns(const spec::BackwardCall& p, const SplitShape& shape, std::int64_t i,
                                               float* shared) {
  const std::int64_t of_weight = p.dweight.present ? shape.slabs_each : 0;
  if (i < of_weight) {
    backward_columns<kType, kLayer, kWhole, false>(p, shape.chunks, i, shared);
  } else {
    backward_columns<kType, kLayer, kWhole, true>(p, shape.chunks, i - of_weight, shared);
  }
}

template <Type kType, int C, bool kLayer, bool kWhole>
__global__ void __launch_bounds__(kSplitThreads, split_blocks_at_once(C, kType == Type::f32, kWhole))
    backward_split_kernel(const __grid_constant__ spec::BackwardCall p, const __grid_constant__ SplitShape shape) {
  begin_kernel(shape.early, p.n, p.weight);
  extern __shared__ float shared[];
  split_blocks(
      shape, [&](std::int64_t slab) { one_of_columns<kType, kLayer, kWhole>(p, shape, slab, shared); },
      [&](std::int64_t block) { backward_rows<kType, C, kLayer, kWhole>(p, shape.rows, block, shared); });
}

// A row too long for registers, by one thread block of kWideThreads, which goes over it twice. Its first tiles stay in
// shared memory, all of them asked for at once; of what is read twice some tiles are under way together.
template <Type kType, bool kLayer, bool kWhole>
__device__ __forceinline__ void backward_wide_row(const spec::BackwardCall& p, std::int64_t r, int cached,
                                                  float* shared) {
  constexpr int G = kWhole ? kBackwardTiles : 1;
  const int thread = thread_index(), first = thread * kChunk;
  const int n = static_cast<int>(p.n), tiles = (n + kTile - 1) / kTile;
  if (!p.dy.present) return pass_through(p, r, first, kTile, tiles);
  const std::byte *const dy = row_at<kWhole>(p.dy, r), *const s = row_at<kWhole>(p.s, r);
  std::byte* const kept = reinterpret_cast<std::byte*>(shared) + wide_shared_bytes(2);
  const WideCache<kType> kept_dy(kept, thread), kept_s(kept + cached * WideCache<kType>::kBytes, thread);
  if constexpr (kWhole) {
    for (int tile = 0; tile < cached; tile += G) {
      kept_dy.template copy<G>(p.dy.type, dy, n, tile);
      kept_s.template copy<G>(p.s.type, s, n, tile);
      copies_commit();
    }
  }
  RowSlopes of{};
  of.rstd = p.rstd[r];
  if constexpr (kLayer) of.mean = p.mean[r];

  PackedVec<kWhole> weight;  // a tile ahead
  const auto load = [&](int tile, Chunk<kType>(&g)[G], Chunk<kType>(&v)[G]) {
    if (kWhole && tile < cached) {
      kept_dy.load(p.dy.type, n, tile, g);
      kept_s.load(p.s.type, n, tile, v);
    } else {
      load_chunks<kType, kWhole>(p.dy.type, dy, n, tile * kTile + first, kTile, g);
      load_chunks<kType, kWhole>(p.s.type, s, n, tile * kTile + first, kTile, v);
    }
  };
  const auto take_weights = [&](int column, float(&w)[kChunk]) {
    weight.weights(p.weight, spec::effective_offset(p.offset), w);
    weight.load(p.weight, n, column + kTile);
  };

  constexpr int kSums = kLayer ? 2 : 1;
  WideSums<kSums> sums(shared, thread);
  weight.load(p.weight, n, first);
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
  weight.load(p.weight, n, first);
  float total[kSums];
  sums.finish(total);
  finish_slopes<kLayer>(total[0], total[kSums - 1], static_cast<float>(n), of);
  const std::byte* const ds = p.ds.present ? row_at<kWhole>(p.ds, r) : nullptr;
  for (int tile = 0; tile < tiles; tile += G) {
    const int begin = tile * kTile + first;
    Chunk<kType> g[G], v[G], beside[G];
    if (ds != nullptr) load_chunks<kType, kWhole>(p.ds.type, ds, n, begin, kTile, beside);
    load(tile, g, v);
#pragma unroll
    for (int k = 0; k < G; ++k) {
      const int column = begin + k * kTile;
      float w[kChunk], d[kChunk], dx[kChunk];
      take_weights(column, w);
      beside[k].values(d);
      gradient_values<kType, kLayer>(
          g[k], v[k], w, of, [&](int i) { return ds != nullptr ? d[i] : spec::kNoAddend; }, dx);
      store_gradient<kType, kWhole>(p, r, n, column, dx);
    }
  }
}

template <Type kType, bool kLayer, bool kWhole>
__global__ void __launch_bounds__(kWideThreads, backward_wide_blocks_at_once(kType == Type::f32, kWhole))
    backward_split_wide_kernel(const __grid_constant__ spec::BackwardCall p, const __grid_constant__ SplitShape shape) {
  begin_kernel(shape.early, p.n, p.weight);
  extern __shared__ float4 wide_shared[];
  float* const shared = reinterpret_cast<float*>(wide_shared);
  split_blocks(
      shape, [&](std::int64_t slab) { one_of_columns<kType, kLayer, kWhole>(p, shape, slab, shared); },
      [&](std::int64_t row) { backward_wide_row<kType, kLayer, kWhole>(p, row, shape.cached, shared); });
}

}  // namespace truenorm::cuda
