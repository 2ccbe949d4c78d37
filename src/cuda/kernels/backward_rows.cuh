// The backward of few rows, or of rows too wide for backward_strips.cuh: thread blocks for rows, which make dx, beside
// thread blocks for columns, which make dweight and dbias (backward_columns.cuh). Neither waits for the other.
#pragma once

#include "cuda/device/reduce.cuh"
#include "cuda/device/weights.cuh"
#include "cuda/tuning/rows.hpp"
#include "spec/norm.hpp"

namespace truenorm::cuda {

// A row's saved statistics and what its sums gave.
struct RowSlopes {
  float mean, rstd, minus_slope, shift;
};

// dy, s - mean and their product.
template <Type kType, bool kLayer>
__device__ __forceinline__ void products(const Chunk<kType>& dy, const Chunk<kType>& s, float mean, float (&g)[kChunk],
                                         float (&d)[kChunk], float (&t)[kChunk]) {
  dy.values(g);
  s.values(d);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if constexpr (kLayer) d[i] = Elements::centred(d[i], mean);
    t[i] = Elements::product(g[i], d[i]);
  }
}

// One row's terms, added to its strip's sums: of dy, s - mean and their product.
template <bool kLayer>
__device__ __forceinline__ void add_to_weight(const spec::BackwardCall& p, const float (&g)[kChunk],
                                              const float (&d)[kChunk], const float (&t)[kChunk], float rstd,
                                              float (&dweight)[kChunk]) {
  if (!kLayer && p.round_xhat) {
    float xhat[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) xhat[i] = Elements::normalised(d[i], rstd);
    round8(p.xhat_type, xhat);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) dweight[i] = Elements::grad_weight_llama(dweight[i], g[i], xhat[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) dweight[i] = Elements::grad_weight(dweight[i], t[i], rstd);
  }
}
__device__ __forceinline__ void add_to_bias(const float (&g)[kChunk], float (&dbias)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) dbias[i] = Elements::grad_bias(dbias[i], g[i]);
}

// A chunk's terms of the row's two sums; `shift` is LayerNorm's. `there`: elements of the row from the chunk's first
// on. Those that it lacks add +0, even where the mean is infinite, or the weight, which is another chunk's where a
// whole one is missing.
template <Type kType, bool kLayer, bool kWhole>
__device__ __forceinline__ void sum_terms(const Chunk<kType>& dy, const Chunk<kType>& s, const float (&w)[kChunk],
                                          float mean, int there, float& slope, float& shift) {
  float g[kChunk], d[kChunk], t[kChunk];
  products<kType, kLayer>(dy, s, mean, g, d, t);
  if (kLayer && !kWhole && there < kChunk) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) t[i] = i < there ? t[i] : 0.0f;
  }
  slope = chunk_products(t, w);
  if constexpr (kLayer) shift = chunk_products(g, w);
  if (kWhole && there <= 0) slope = shift = 0.0f;
}

template <bool kLayer>
__device__ __forceinline__ void finish_slopes(float slope, float shift, float n, RowSlopes& row) {
  row.minus_slope = spec::minus_slope_of(slope, n, row.rstd);
  row.shift = kLayer ? spec::shift_of(shift, n) : 0.0f;
}

// A chunk of the gradient, `ds(i)` being what arrives beside dy.
template <Type kType, bool kLayer, class Ds>
__device__ __forceinline__ void gradient_values(const Chunk<kType>& dy, const Chunk<kType>& s, const float (&w)[kChunk],
                                                const RowSlopes& row, const Ds& ds, float (&dx)[kChunk]) {
  float g[kChunk];
  dy.values(g);
  s.values(dx);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if constexpr (kLayer) {
      const float centred = Elements::centred(dx[i], row.mean);
      dx[i] = Elements::grad_layer(g[i], w[i], centred, row.minus_slope, row.shift, row.rstd, ds(i));
    } else {
      dx[i] = Elements::grad_rms(g[i], w[i], dx[i], row.minus_slope, row.rstd, ds(i));
    }
  }
}
// The same without ds.
template <Type kType, bool kLayer>
__device__ __forceinline__ void gradient_values(const Chunk<kType>& dy, const Chunk<kType>& s, const float (&w)[kChunk],
                                                const RowSlopes& row, float (&dx)[kChunk]) {
  gradient_values<kType, kLayer>(
      dy, s, w, row, [](int) { return spec::kNoAddend; }, dx);
}

template <Type kType, bool kWhole>
__device__ __forceinline__ void ds_values(const spec::BackwardCall& p, const std::byte* ds, int n, int column,
                                          float (&v)[kChunk]) {
  if (ds == nullptr) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = spec::kNoAddend;
    return;
  }
  Chunk<kType> c[1];
  load_chunks<kType, kWhole>(p.ds.type, ds, n, column, 0, c);
  c[0].values(v);
}

template <Type kType, bool kWhole>
__device__ __forceinline__ void store_gradient(const spec::BackwardCall& p, std::int64_t r, int n, int column,
                                               const float (&dx)[kChunk]) {
  if (p.dx.present) store_chunk<kType, kWhole>(p.dx.type, row_at<kWhole>(p.dx, r), n, column, dx);
  if (p.dresidual.present) store_chunk<kType, kWhole>(p.dresidual.type, row_at<kWhole>(p.dresidual, r), n, column, dx);
}

// Without dy the gradient is ds itself; of this thread's chunks, `step` columns apart.
__device__ __forceinline__ void pass_through(const spec::BackwardCall& p, std::int64_t r, int first, int step,
                                             int chunks) {
  const int n = static_cast<int>(p.n);
  for (int column = first; column < n && chunks > 0; column += step, --chunks) {
    float v[kChunk];
    ds_values<Type::f32, false>(p, spec::row_of(p.ds, r), n, column, v);
    store_gradient<Type::f32, false>(p, r, n, column, v);
  }
}

// The weight gradients of a single row: strips of one term, or none.
template <Type kType, bool kLayer>
__device__ __forceinline__ void store_only_row(const spec::BackwardCall& p, const Chunk<kType>& dy,
                                               const Chunk<kType>& s, const RowSlopes& of, int n, int column) {
  float g[kChunk], d[kChunk], t[kChunk], dweight[kChunk] = {}, dbias[kChunk] = {};
  products<kType, kLayer>(dy, s, of.mean, g, d, t);
  if (p.dweight.present) add_to_weight<kLayer>(p, g, d, t, of.rstd, dweight);
  if (p.dbias.present) add_to_bias(g, dbias);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    dweight[i] = Scalar::add(dweight[i], 0.0f);
    dbias[i] = Scalar::add(dbias[i], 0.0f);
  }
  if (p.dweight.present) store_chunk<Type::f32, false>(p.dweight.type, p.dweight.data, n, column, dweight);
  if (p.dbias.present) store_chunk<Type::f32, false>(p.dbias.type, p.dbias.data, n, column, dbias);
}

// One row for each group of threads, as forward_kernel has them. `block`: which of the thread blocks for rows this is.
template <Type kType, int C, bool kLayer, bool kWhole>
__device__ __forceinline__ void backward_rows(const spec::BackwardCall& p, const RowShape& shape, std::int64_t block,
                                              float* shared) {
  const RowPlace<C> at(shape.log_lanes, shape.warps);
  const std::int64_t r = block * shape.rows_per_cta + at.row;
  const bool active = at.row < shape.rows_per_cta && at.warp < shape.warps && r < p.m;
  const int n = active ? static_cast<int>(p.n) : 0;
  const std::int64_t row = active ? r : 0;
  if (!p.dy.present) {
    if (active) pass_through(p, r, at.first, at.kStep, C);
    return;
  }
  RowSlopes of{};
  of.rstd = p.rstd[row];
  if constexpr (kLayer) of.mean = p.mean[row];
  Chunk<kType> dy[C], s[C];
  load_chunks<kType, kWhole>(p.dy.type, row_at<kWhole>(p.dy, row), n, at.first, at.kStep, dy);
  load_chunks<kType, kWhole>(p.s.type, row_at<kWhole>(p.s, row), n, at.first, at.kStep, s);
  // Under way before it is needed; where a thread has many chunks there are no registers for it, and it is read twice.
  constexpr bool kEarly = C == 1;
  PackedVec<kWhole> weight[kEarly ? C : 1];
  if constexpr (kEarly) {
#pragma unroll
    for (int c = 0; c < C; ++c) weight[c].load(p.weight, n, at.first + c * at.kStep);
  }
  const auto weights = [&](int c, float(&w)[kChunk]) {
    if constexpr (!kEarly) weight[0].load(p.weight, n, at.first + c * at.kStep);
    weight[kEarly ? c : 0].weights(p.weight, spec::effective_offset(p.offset), w);
  };
  constexpr int kSums = kLayer ? 2 : 1;
  float sums[kSums][padded(C)] = {}, total[kSums];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    float w[kChunk];
    weights(c, w);
    sum_terms<kType, kLayer, kWhole>(dy[c], s[c], w, of.mean, n - at.first - c * at.kStep, sums[0][c],
                                     sums[kSums - 1][c]);
  }
  row_sums<kSums, C>(at, sums, shared, total);
  if (!active) return;
  finish_slopes<kLayer>(total[0], total[kSums - 1], static_cast<float>(p.n), of);
  const std::byte* const ds = p.ds.present ? row_at<kWhole>(p.ds, r) : nullptr;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int column = at.first + c * at.kStep;
    float w[kChunk], d[kChunk], dx[kChunk];
    weights(c, w);
    ds_values<kType, kWhole>(p, ds, n, column, d);
    gradient_values<kType, kLayer>(
        dy[c], s[c], w, of, [&](int i) { return d[i]; }, dx);
    store_gradient<kType, kWhole>(p, r, n, column, dx);
    if (shape.only_row) store_only_row<kType, kLayer>(p, dy[c], s[c], of, n, column);
  }
}

}  // namespace truenorm::cuda
