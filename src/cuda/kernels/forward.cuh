// The forward of rows that fit in registers: C chunks of a row in each thread of a group. Each element is read once.
#pragma once

#include "cuda/device/reduce.cuh"
#include "cuda/device/weights.cuh"
#include "cuda/tuning/rows.hpp"
#include "spec/norm.hpp"

namespace truenorm::cuda {

// What `sums` sums of a row need of shared memory.
constexpr std::size_t row_shared_bytes(const RowPlan& plan, int sums) {
  return plan.shape.warps == 1 ? 0 : sizeof(float) * static_cast<std::size_t>(sums * plan.shape.warps * plan.chunks);
}

// The row's statistics from s. `shared`: row_shared_bytes for three sums.
template <Type kType, int C, bool kLayer>
__device__ __forceinline__ void row_statistics(const spec::ForwardCall& p, const RowPlace& at, int n,
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
      const int column = at.first + c * at.step;
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

// A group of threads goes over rows, some apart; the next row is under way while this one is used. The weight stays in
// registers, and so does LayerNorm's bias; RMSNorm's, which is rare, is read again for each row.
template <Type kType, int C, bool kLayer, bool kAdd, bool kWhole>
__global__ void __launch_bounds__(most_threads(C, !kLayer && !kAdd && kType != Type::f32))
    forward_kernel(const __grid_constant__ spec::ForwardCall p, const __grid_constant__ RowShape shape) {
  extern __shared__ float shared[];
  const RowPlace at(shape.log_lanes, shape.warps);
  const int n = static_cast<int>(p.n);
  const std::int64_t step = std::int64_t{gridDim.x} * shape.rows_per_cta;
  // Threads without a row go along with the barriers: `first` tells how far the thread block goes.
  std::int64_t first = std::int64_t{blockIdx.x} * shape.rows_per_cta;

  Chunk<kType> x[C], residual[kAdd ? C : 1];
  const auto load = [&](std::int64_t begin) {
    const std::int64_t r = begin + at.row;
    if (r >= p.m) return;
    load_chunks<kType, kWhole>(p.x.type, row_at<kWhole>(p.x, r), n, at.first, at.step, x);
    if constexpr (kAdd) {
      load_chunks<kType, kWhole>(p.residual.type, row_at<kWhole>(p.residual, r), n, at.first, at.step, residual);
    }
  };
  load(first);

  float w[C][kChunk], b[kLayer ? C : 1][kChunk];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int column = at.first + c * at.step;
    load_packed<kWhole>(p.weight, n, column).weights(p.weight, spec::effective_offset(p.offset), w[c]);
    if constexpr (kLayer) load_packed<kWhole>(p.bias, n, column).addends(p.bias, b[c]);
  }
  bool odd = false;  // rows alternate between two places in shared memory, so that one barrier each is enough
  for (; first < p.m; first += step, odd = !odd) {
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
          store_chunk<kType, kWhole>(p.s.type, row_at<kWhole>(p.s, r), n, at.first + c * at.step, v);
        }
      }
    }
    load(first + step);

    float mean, rstd;
    row_statistics<kType, C, kLayer>(p, at, n, s, shared + (odd ? 3 * C * at.warps : 0), mean, rstd);
    if (!active) continue;
    if (at.leads()) {
      if (p.mean != nullptr) p.mean[r] = mean;
      if (p.rstd != nullptr) p.rstd[r] = rstd;
    }
    if (!p.y.present) continue;
    std::byte* const y = row_at<kWhole>(p.y, r);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = at.first + c * at.step;
      float v[kChunk];
      xhat_values<kType, kLayer>(p, s[c], mean, rstd, v);
      if constexpr (kLayer) {
        finish_output(w[c], b[c], v);
      } else if (p.bias.present) {
        load_packed<kWhole>(p.bias, n, column).addends(p.bias, b[0]);
        finish_output(w[c], b[0], v);
      } else {
        finish_output(w[c], v);
      }
      store_chunk<kType, kWhole>(p.y.type, y, n, column, v);
    }
  }
}

}  // namespace truenorm::cuda
