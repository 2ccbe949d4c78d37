// The forward of rows that fit in registers: C chunks of a row in each thread of a group. Each element is read once.
#pragma once

#include "cuda/device/dependent.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/weights.cuh"
#include "cuda/tuning/rows.hpp"
#include "spec/norm.hpp"

namespace truenorm::cuda {

// The row's statistics from s. `shared`: row_shared_bytes for three sums.
template <Type kType, int C, bool kLayer>
__device__ __forceinline__ void row_statistics(const spec::ForwardCall& p, const RowPlace<C>& at, int n,
                                               const Chunk<kType> (&s)[C], float* shared, float& mean, float& rstd) {
  const auto n_float = static_cast<float>(p.n);
  float sums[1][padded(C)] = {}, total[1];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    float v[kChunk];
    s[c].values(v);
    sums[0][c] = kLayer ? chunk_sum(v) : chunk_products(v, v);
  }
  row_sums<1, C>(at, sums, shared, total);
  if constexpr (!kLayer) {
    mean = 0.0f;
    rstd = spec::rms_rstd(total[0], n_float, p.eps);
  } else {
    const float first_mean = Scalar::div(total[0], n_float);
    float sums2[2][padded(C)] = {}, total2[2];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      float d[kChunk];
      s[c].values(d);
      const int column = at.first + c * at.kStep;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) d[i] = Elements::centred(d[i], first_mean);
      if (column + kChunk > n) {  // missing elements are +0, not -mean
#pragma unroll
        for (int i = 0; i < kChunk; ++i) d[i] = column + i < n ? d[i] : 0.0f;
      }
      sums2[0][c] = chunk_sum(d);
      sums2[1][c] = chunk_products(d, d);
    }
    row_sums<2, C>(at, sums2, shared + at.warps * C, total2);
    const auto found = spec::layer_statistics(first_mean, total2[0], total2[1], n_float, p.eps);
    mean = found.mean;
    rstd = found.rstd;
  }
}

// A chunk of xhat from one of s; finish_output makes it y.
template <Type kType, bool kLayer>
__device__ __forceinline__ void xhat_values(const spec::ForwardCall& p, const Chunk<kType>& s, float mean, float rstd,
                                            float (&y)[kChunk]) {
  s.values(y);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::normalised(kLayer ? Elements::centred(y[i], mean) : y[i], rstd);
  if (!kLayer && p.round_xhat) round8(kType == Type::f32 ? p.xhat_type : kType, y);
}

__device__ __forceinline__ void finish_output(const float (&w)[kChunk], const float (&b)[kChunk], float (&y)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::output(y[i], w[i], b[i]);
}
__device__ __forceinline__ void finish_output(const float (&w)[kChunk], float (&y)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::output(y[i], w[i], spec::kNoAddend);
}

// s = x + residual as it is stored.
template <Type kType>
__device__ __forceinline__ void add_residual(Type s_type, Chunk<kType>& x, const Chunk<kType>& residual,
                                             float (&s)[kChunk]) {
  float r[kChunk];
  x.values(s);
  residual.values(r);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) s[i] = Elements::residual_sum(s[i], r[i]);
  if constexpr (kType == Type::f32) round8(s_type, s);
  x.set(s);
}

// Eight FP32 values that a thread keeps in shared memory, for itself alone: two halves, each thread's beside its
// neighbour's. `place` counts such eights, `threads` those of the thread block.
__device__ __forceinline__ void keep(float4* kept, int thread, int place, const float (&v)[kChunk]) {
  const int threads = blockDim.x;
  kept[2 * place * threads + thread] = make_float4(v[0], v[1], v[2], v[3]);
  kept[(2 * place + 1) * threads + thread] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void kept_values(const float4* kept, int thread, int place, float (&v)[kChunk]) {
  const int threads = blockDim.x;
  const float4 a = kept[2 * place * threads + thread], b = kept[(2 * place + 1) * threads + thread];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// A group of threads goes over rows, some apart; the next row is under way while this one is used. Where there are few
// rows (kOnce) each group has one, and as little as possible is done before its sums. RMSNorm's bias, which is rare, is
// read again for each row.
template <Type kType, int C, bool kLayer, bool kAdd, bool kWhole, bool kOnce>
__global__ void __launch_bounds__(most_threads(C, !kLayer && !kAdd))
    forward_kernel(const __grid_constant__ spec::ForwardCall p, const __grid_constant__ RowShape shape,
                   const __grid_constant__ bool early) {
  begin_kernel(early, p.n, p.weight, p.bias);
  extern __shared__ float4 kept[];
  constexpr bool kKept = keeps_in_shared(C) && !kOnce;
  constexpr int kSums = kLayer ? 3 : 1;
  float* const shared = reinterpret_cast<float*>(kept + (kKept ? 2 * C * (kLayer ? 2 : 1) * blockDim.x : 0));
  const RowPlace<C> at(shape.log_lanes, shape.warps);
  const int n = static_cast<int>(p.n);
  const std::int64_t step = std::int64_t{gridDim.x} * shape.rows_per_cta;
  // Threads without a row go along with the barriers: `first` tells how far the thread block goes.
  std::int64_t first = std::int64_t{blockIdx.x} * shape.rows_per_cta;

  Chunk<kType> x[C], residual[kAdd ? C : 1];
  const auto load = [&](std::int64_t begin) {
    const std::int64_t r = begin + at.row;
    if (r >= p.m) return;
    load_chunks<kType, kWhole>(p.x.type, row_at<kWhole>(p.x, r), n, at.first, at.kStep, x);
    if constexpr (kAdd) {
      load_chunks<kType, kWhole>(p.residual.type, row_at<kWhole>(p.residual, r), n, at.first, at.kStep, residual);
    }
  };
  load(first);

  // All loads of a vector are on their way before any of them is waited for.
  PackedVec<kWhole> packed_w[C], packed_b[kLayer && kOnce ? C : 1];
  const auto load_vector = [&](const Vec& v, PackedVec<kWhole>(&packed)[C]) {
#pragma unroll
    for (int c = 0; c < C; ++c) packed[c].load(v, n, at.first + c * at.kStep);
  };
  float w[kKept || kOnce ? 1 : C][kChunk], b[kLayer && !kKept && !kOnce ? C : 1][kChunk];
  load_vector(p.weight, packed_w);
  if constexpr (kOnce) {
    if constexpr (kLayer) load_vector(p.bias, packed_b);
  } else {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      packed_w[c].weights(p.weight, spec::effective_offset(p.offset), w[kKept ? 0 : c]);
      if constexpr (kKept) keep(kept, at.thread, c, w[0]);
    }
    if constexpr (kLayer) {
      load_vector(p.bias, packed_w);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        packed_w[c].addends(p.bias, b[kKept ? 0 : c]);
        if constexpr (kKept) keep(kept, at.thread, C + c, b[0]);
      }
    }
  }
  bool odd = false;  // rows alternate between two places in shared memory, so that one barrier each is enough
  do {
    const std::int64_t r = first + at.row;
    const bool active = r < p.m;
    Chunk<kType> s[C];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      s[c] = x[c];
      if constexpr (kAdd) {
        float v[kChunk];
        add_residual<kType>(p.s_type, s[c], residual[c], v);
        if (p.s.present && active) {
          store_chunk<kType, kWhole>(p.s.type, row_at<kWhole>(p.s, r), n, at.first + c * at.kStep, v);
        }
      }
    }
    if constexpr (!kOnce) load(first + step);

    float mean, rstd;
    row_statistics<kType, C, kLayer>(p, at, n, s, shared + (odd ? kSums * C * at.warps : 0), mean, rstd);
    odd = !odd;
    first += step;
    if (!active) continue;
    if (at.leads()) {
      if (p.mean != nullptr) p.mean[r] = mean;
      if (p.rstd != nullptr) p.rstd[r] = rstd;
    }
    if (!p.y.present) continue;
    std::byte* const y = row_at<kWhole>(p.y, r);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = at.first + c * at.kStep;
      const int own = kKept || kOnce ? 0 : c;
      float v[kChunk];
      xhat_values<kType, kLayer>(p, s[c], mean, rstd, v);
      if constexpr (kKept) kept_values(kept, at.thread, c, w[0]);
      if constexpr (kOnce) packed_w[c].weights(p.weight, spec::effective_offset(p.offset), w[0]);
      if constexpr (kLayer) {
        if constexpr (kKept) kept_values(kept, at.thread, C + c, b[0]);
        if constexpr (kOnce) packed_b[c].addends(p.bias, b[0]);
        finish_output(w[own], b[own], v);
      } else if (p.bias.present) {
        load_packed<kWhole>(p.bias, n, column).addends(p.bias, b[0]);
        finish_output(w[own], b[0], v);
      } else {
        finish_output(w[own], v);
      }
      store_chunk<kType, kWhole>(p.y.type, y, n, column, v);
    }
  } while (!kOnce && first < p.m);
}

}  // namespace truenorm::cuda
