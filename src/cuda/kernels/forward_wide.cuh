// The forward of rows too long for the registers of a thread block: tile by tile, s kept in shared memory as far as it
// fits, and made again from its operands past that.
#pragma once

#include "cuda/device/wide.cuh"
#include "cuda/kernels/forward.cuh"

namespace truenorm::cuda {

// One row a thread block. `cached` tiles of s are kept, behind the sums' shared memory.
template <Type kType, bool kLayer>
__global__ void __launch_bounds__(kWideThreads)
    forward_wide_kernel(const __grid_constant__ spec::ForwardCall p, const __grid_constant__ int cached) {
  extern __shared__ float shared[];
  auto* const cache = reinterpret_cast<Chunk<kType>*>(reinterpret_cast<std::byte*>(shared) + wide_shared_bytes(2));
  const std::int64_t r = blockIdx.x;
  const int n = static_cast<int>(p.n);
  const std::byte* const x = spec::row_of(p.x, r);
  const std::byte* const residual = p.residual.present ? spec::row_of(p.residual, r) : nullptr;
  std::byte* const stored = p.s.present ? spec::row_of(p.s, r) : nullptr;
  const int first = threadIdx.x * kChunk;
  const int tiles = (n + kTile - 1) / kTile;
  const auto n_float = static_cast<float>(n);

  const auto make = [&](int column, bool store) {
    Chunk<kType> s[1];
    load_chunks<kType, false>(p.x.type, x, n, column, 0, s);
    if (residual != nullptr) {
      Chunk<kType> other[1];
      load_chunks<kType, false>(p.residual.type, residual, n, column, 0, other);
      float v[kChunk];
      add_residual<kType>(p.s_type, s[0], other[0], v);
      if (store && stored != nullptr) store_chunk<kType, false>(p.s.type, stored, n, column, v);
    }
    return s[0];
  };
  // Where s lies over x or the residual, what is there after the first pass is s itself.
  const auto again = [&](int tile) {
    const int column = tile * kTile + first;
    if (tile < cached) return cache[tile * kWideThreads + threadIdx.x];
    if (stored == nullptr) return make(column, false);
    Chunk<kType> s[1];
    load_chunks<kType, false>(p.s.type, stored, n, column, 0, s);
    return s[0];
  };

  WideSums<1> sum(shared);
  for (int tile = 0; tile < tiles; ++tile) {
    const Chunk<kType> s = make(tile * kTile + first, true);
    if (tile < cached) cache[tile * kWideThreads + threadIdx.x] = s;
    float v[kChunk], part[1];
    s.values(v);
    part[0] = kLayer ? chunk_sum(v) : chunk_products(v, v);
    sum.add(part);
  }
  float total[1], mean = 0.0f, rstd;
  sum.finish(total);
  if constexpr (!kLayer) {
    rstd = spec::rms_rstd(total[0], n_float, p.eps);
  } else {
    const float first_mean = Scalar::div(total[0], n_float);
    WideSums<2> sums(shared);
    for (int tile = 0; tile < tiles; ++tile) {
      const int column = tile * kTile + first;
      float d[kChunk], part[2];
      again(tile).values(d);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) d[i] = column + i < n ? Elements::centred(d[i], first_mean) : 0.0f;
      part[0] = chunk_sum(d);
      part[1] = chunk_products(d, d);
      sums.add(part);
    }
    float totals[2];
    sums.finish(totals);
    const auto found = spec::layer_statistics(first_mean, totals[0], totals[1], n_float, p.eps);
    mean = found.mean;
    rstd = found.rstd;
  }
  if (threadIdx.x == 0) {
    if (p.mean != nullptr) p.mean[r] = mean;
    if (p.rstd != nullptr) p.rstd[r] = rstd;
  }
  if (!p.y.present) return;
  std::byte* const y = spec::row_of(p.y, r);
  for (int tile = 0; tile < tiles; ++tile) {
    const int column = tile * kTile + first;
    float w[kChunk], b[kChunk], v[kChunk];
    load_packed<false>(p.weight, n, column).weights(p.weight, spec::effective_offset(p.offset), w);
    load_packed<false>(p.bias, n, column).addends(p.bias, b);
    xhat_values<kType, kLayer>(p, again(tile), mean, rstd, v);
    finish_output(w, b, v);
    store_chunk<kType, false>(p.y.type, y, n, column, v);
  }
}

}  // namespace truenorm::cuda
