// The backward in which rows and columns go apart: any rows, any width.
#pragma once

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
  unsigned int* counter = nullptr;  // where dx is written over what the columns read, they go first; zero before, after
};

// visit_slab(i) and visit_rows(i) for this thread block's share. With a counter it is a cooperative launch of any size,
// else one thread block for each.
template <class VisitSlab, class VisitRows>
__device__ __forceinline__ void split_blocks(const SplitShape& shape, const VisitSlab& visit_slab,
                                             const VisitRows& visit_rows) {
  const std::int64_t block = blockIdx.x;
  if (shape.counter == nullptr) {
    block < shape.row_blocks ? visit_rows(block) : visit_slab(block - shape.row_blocks);
    return;
  }
  for (std::int64_t i = block; i < shape.slabs; i += gridDim.x) visit_slab(i);
  grid_arrive(shape.counter, gridDim.x);
  grid_wait(shape.counter, gridDim.x);
  for (std::int64_t i = block; i < shape.row_blocks; i += gridDim.x) {
    __syncthreads();
    visit_rows(i);
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
  extern __shared__ float shared[];
  split_blocks(
      shape, [&](std::int64_t slab) { one_of_columns<kType, kLayer, kWhole>(p, shape, slab, shared); },
      [&](std::int64_t block) { backward_rows<kType, C, kLayer, kWhole>(p, shape.rows, block, shared); });
}

// A row too long for registers, by one thread block of kWideThreads, which reads it twice.
template <Type kType, bool kLayer>
__device__ __forceinline__ void backward_wide_row(const spec::BackwardCall& p, std::int64_t r, float* shared) {
  const int n = static_cast<int>(p.n), first = threadIdx.x * kChunk;
  const int tiles = (n + kTile - 1) / kTile;
  if (!p.dy.present) return pass_through(p, r, first, kTile, tiles);
  const std::byte *const dy = spec::row_of(p.dy, r), *const s = spec::row_of(p.s, r);
  const std::byte* const ds = p.ds.present ? spec::row_of(p.ds, r) : nullptr;
  const float offset = spec::effective_offset(p.offset);
  RowSlopes of{};
  of.rstd = __ldg(p.rstd + r);
  if constexpr (kLayer) of.mean = __ldg(p.mean + r);

  constexpr int kSums = kLayer ? 2 : 1;
  WideSums<kSums> sums(shared);
  const auto visit = [&](int tile, auto&& use) {
    const int column = tile * kTile + first;
    Chunk<kType> g[1], v[1];
    load_chunks<kType, false>(p.dy.type, dy, n, column, 0, g);
    load_chunks<kType, false>(p.s.type, s, n, column, 0, v);
    float w[kChunk];
    load_packed<false>(p.weight, n, column).weights(p.weight, offset, w);
    use(column, g[0], v[0], w);
  };
  for (int tile = 0; tile < tiles; ++tile) {
    visit(tile, [&](int, const Chunk<kType>& g, const Chunk<kType>& v, const float(&w)[kChunk]) {
      float part[kSums];
      sum_terms<kType, kLayer>(g, v, w, of.mean, part[0], part[kSums - 1]);
      sums.add(part);
    });
  }
  float total[kSums];
  sums.finish(total);
  finish_slopes<kLayer>(total[0], total[kSums - 1], static_cast<float>(n), of);
  for (int tile = 0; tile < tiles; ++tile) {
    visit(tile, [&](int column, const Chunk<kType>& g, const Chunk<kType>& v, const float(&w)[kChunk]) {
      float d[kChunk], dx[kChunk];
      ds_values<kType, false>(p, ds, n, column, d);
      gradient_values<kType, kLayer>(
          g, v, w, of, [&](int i) { return d[i]; }, dx);
      store_gradient<kType, false>(p, r, n, column, dx);
    });
  }
}

template <Type kType, bool kLayer>
__global__ void __launch_bounds__(kWideThreads)
    backward_split_wide_kernel(const __grid_constant__ spec::BackwardCall p, const __grid_constant__ SplitShape shape) {
  extern __shared__ float shared[];
  split_blocks(
      shape, [&](std::int64_t slab) { one_of_columns<kType, kLayer, false>(p, shape, slab, shared); },
      [&](std::int64_t row) { backward_wide_row<kType, kLayer>(p, row, shared); });
}

}  // namespace truenorm::cuda
