// The backward's arithmetic over a chunk: terms of a row's sums, of its strip's weight gradients, and of its gradient.
#pragma once

#include "cuda/device/reduce.cuh"
#include "cuda/device/weights.cuh"
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

// One row's terms, added to its strip's sums: of dy, s - mean and their product. `round_xhat`: with xhat as the forward
// rounded it.
template <bool kLayer>
__device__ __forceinline__ void add_to_weight(bool round_xhat, Type xhat_type, const float (&g)[kChunk],
                                              const float (&d)[kChunk], const float (&t)[kChunk], float rstd,
                                              float (&dweight)[kChunk]) {
  if (!kLayer && round_xhat) {
    float xhat[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) xhat[i] = Elements::normalised(d[i], rstd);
    round8(xhat_type, xhat);
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

}  // namespace truenorm::cuda
