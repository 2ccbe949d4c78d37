// The forward of rows too long for the registers of a thread block: tile by tile, s kept in shared memory as far as it
// fits, and made again from its operands past that.
#pragma once

#include "cuda/device/dependent.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/kernels/forward.cuh"

namespace truenorm::cuda {

// A chunk of xhat from one of s; finish_output makes it y.
template <Type kType, bool kLayer>
__device__ __forceinline__ void xhat_values(const spec::ForwardCall& p, const Chunk<kType>& s, float mean, float rstd,
                                            float (&y)[kChunk]) {
  s.values(y);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::normalised(kLayer ? Elements::centred(y[i], mean) : y[i], rstd);
  if (!kLayer && p.round_xhat) round8(kType == Type::f32 ? p.xhat_type : kType, y);
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

// All lanes of a warp call.
template <Type kType, bool kWhole>
__device__ __forceinline__ void store_tile(Type type, std::byte* row, int n, int column, int thread,
                                           const float (&v)[kChunk]) {
  if constexpr (kWhole) {
    store_beside<kType>(type, row + std::int64_t{column} * bytes_each<kType>(type), n - column, thread & 31, v);
  } else {
    store_chunk<kType, kWhole>(type, row, n, column, v);
  }
}

// A thread block goes over rows, some apart, and keeps `cached` tiles of s, behind the sums' shared memory. Where
// chunks are whole, all these tiles of x are asked for at once, and the next row's as soon as this one's have been read
// for the last time, so that loads are under way whatever else is done; what is not kept is loaded some tiles at a
// time.
template <Type kType, bool kLayer, bool kWhole>
__global__ void __launch_bounds__(kWideThreads, forward_wide_blocks_at_once(kType == Type::f32, kWhole))
    forward_wide_kernel(const __grid_constant__ spec::ForwardCall p, const __grid_constant__ int cached,
                        const __grid_constant__ bool early) {
  begin_kernel(early, p.n, p.weight, p.bias);
  extern __shared__ float4 wide_shared[];
  constexpr int G = !kWhole ? 1 : kLayer ? kForwardTiles / 2 : kForwardTiles;
  constexpr int kAhead = kWhole ? 2 : 0;  // tiles that weight and bias are loaded ahead
  constexpr int kSlots = kAhead > 0 ? kAhead : 1;
  float* const shared = reinterpret_cast<float*>(wide_shared);
  const int thread = thread_index(), first = thread * kChunk;
  const WideCache<kType> cache(reinterpret_cast<std::byte*>(shared) + wide_shared_bytes(2), thread);
  const int n = static_cast<int>(p.n), tiles = (n + kTile - 1) / kTile;
  const auto n_float = static_cast<float>(n);
  const bool add = p.residual.present;
  const Type kept = kWhole && !add ? p.x.type : Type::f32;  // what the cache has after the first pass

  std::conditional_t<kWhole, unsigned int, std::int64_t> r = blockIdx.x;
  const std::byte* x = row_at<kWhole>(p.x, r);
  if constexpr (kWhole) {
    for (int tile = 0; tile < cached; tile += G) {
      cache.template copy<G>(p.x.type, x, n, tile);
      copies_commit();
    }
  }
  while (true) {
    const std::byte* const residual = add ? row_at<kWhole>(p.residual, r) : nullptr;
    std::byte* const stored = add && p.s.present ? row_at<kWhole>(p.s, r) : nullptr;
    // G chunks of s made of its operands: in the first pass, in which they are stored and kept, and again.
    const auto make = [&](int tile, bool again, Chunk<kType>(&s)[G]) {
      const int column = tile * kTile + first;
      const bool keep = !again && tile < cached;
      Chunk<kType> other[G];
      if (add) load_chunks<kType, kWhole>(p.residual.type, residual, n, column, kTile, other);
      if (kWhole && keep) {
        cache.wait((cached - 1 - tile) / G);
        cache.load(p.x.type, n, tile, s);
      } else {
        load_chunks<kType, kWhole>(p.x.type, x, n, column, kTile, s);
      }
      if (kWhole && !add) return;  // what is kept is what was copied
#pragma unroll
      for (int k = 0; k < G; ++k) {
        float v[kChunk];
        if (add) {
          add_residual<kType>(p.s_type, s[k], other[k], v);
          if (!again && stored != nullptr) {
            store_tile<kType, kWhole>(p.s.type, stored, n, column + k * kTile, thread, v);
          }
        } else {
          s[k].values(v);
        }
        if (keep) cache.store(n, tile + k, v);
      }
    };
    // Where s lies over x or the residual, what is there after the first pass is s itself.
    const auto again = [&](int tile, Chunk<kType>(&s)[G]) {
      if (tile < cached) return cache.load(kept, n, tile, s);
      if (stored == nullptr) return make(tile, true, s);
      load_chunks<kType, kWhole>(p.s.type, stored, n, tile * kTile + first, kTile, s);
    };
    PackedVec<kWhole> packed_w[kSlots], packed_b[kLayer ? kSlots : 1];
    const auto load_vectors = [&](int slot, int column) {
      packed_w[slot].load(p.weight, n, column);
      if constexpr (kLayer) packed_b[slot].load(p.bias, n, column);
    };
    const auto first_vectors = [&] {
      if (!p.y.present) return;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) load_vectors(k, k * kTile + first);
    };

    WideSums<1> sum(shared, thread);
    for (int tile = 0; tile < tiles; tile += G) {
      Chunk<kType> s[G];
      make(tile, false, s);
      float part[G];
#pragma unroll
      for (int k = 0; k < G; ++k) {
        float v[kChunk];
        s[k].values(v);
        part[k] = kLayer ? chunk_sum(v) : chunk_products(v, v);
      }
      sum.template add<G>(part);
    }
    if constexpr (!kLayer) first_vectors();
    float total[1], mean = 0.0f, rstd;
    sum.finish(total);
    if constexpr (!kLayer) {
      rstd = spec::rms_rstd(total[0], n_float, p.eps);
    } else {
      const float first_mean = Scalar::div(total[0], n_float);
      WideSums<2> sums(shared, thread);
      for (int tile = 0; tile < tiles; tile += G) {
        Chunk<kType> s[G];
        again(tile, s);
        float part[2 * G];
#pragma unroll
        for (int k = 0; k < G; ++k) {
          const int column = (tile + k) * kTile + first;
          float d[kChunk];
          s[k].values(d);
#pragma unroll
          for (int i = 0; i < kChunk; ++i) {
            const bool there = (kWhole ? column : column + i) < n;  // what is missing is +0, not -mean
            d[i] = there ? Elements::centred(d[i], first_mean) : 0.0f;
          }
          part[k] = chunk_sum(d);
          part[G + k] = chunk_products(d, d);
        }
        sums.template add<G>(part);
      }
      first_vectors();
      float totals[2];
      sums.finish(totals);
      const auto found = spec::layer_statistics(first_mean, totals[0], totals[1], n_float, p.eps);
      mean = found.mean;
      rstd = found.rstd;
    }
    if (thread == 0) {
      if (p.mean != nullptr) p.mean[r] = mean;
      if (p.rstd != nullptr) p.rstd[r] = rstd;
    }
    std::byte* const y = p.y.present ? row_at<kWhole>(p.y, r) : nullptr;
    r += gridDim.x;
    const std::byte* const next = r < p.m ? row_at<kWhole>(p.x, r) : nullptr;
    for (int tile = 0; tile < tiles; tile += G) {
      Chunk<kType> s[G];
      if (y != nullptr) again(tile, s);
      if (kWhole && next != nullptr && tile < cached) {
        cache.template copy<G>(p.x.type, next, n, tile);
        copies_commit();
      }
      if (y == nullptr) continue;
#pragma unroll
      for (int k = 0; k < G; ++k) {
        const int column = (tile + k) * kTile + first, slot = k % kSlots;
        float w[kChunk], b[kChunk], v[kChunk];
        if constexpr (kAhead == 0) load_vectors(slot, column);
        xhat_values<kType, kLayer>(p, s[k], mean, rstd, v);
        packed_w[slot].weights(p.weight, spec::effective_offset(p.offset), w);
        if constexpr (kLayer) packed_b[slot].addends(p.bias, b);
        if (!kLayer && p.bias.present) load_packed<kWhole>(p.bias, n, column).addends(p.bias, b);
        if (kLayer || p.bias.present) {
          finish_output(w, b, v);
        } else {
          finish_output(w, v);
        }
        if constexpr (kAhead > 0) load_vectors(slot, column + kAhead * kTile);
        store_tile<kType, kWhole>(p.y.type, y, n, column, thread, v);
      }
    }
    if (next == nullptr) return;
    x = next;
  }
}

}  // namespace truenorm::cuda
