// The backward of many rows, strip by strip: matrices are read once, through a ring of bulk copies; a strip's weight
// gradients stay in registers; when all strips are done, all thread blocks sum them together.
//
// Wide rows: a thread block (or a cluster of two, half a row each) works on one strip, a tile of kRows of its rows at a
// time. The gradients of a tile are made after the sums of the next, so that no thread waits for sums under way.
// Narrow rows: a warp (or part of one) has a row and a strip of its own, and needs nobody else's sums.
#pragma once

#include "cuda/device/bulk.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/kernels/backward_columns.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "cuda/kernels/final_sum.cuh"
#include "cuda/tuning/strips.hpp"

namespace truenorm::cuda {

// What a launch is given of its plan.
struct StripsShape {
  int log_lanes, strips, stages, columns, groups;
  float* partials;        // [dweight?, dbias?][groups][n]; null where neither is asked for
  unsigned int* counter;  // zero before and after
};

enum class Spread { kNarrow, kBlock, kCluster };

// One of `count` places that are used in turn, and the parity of the phase that its barriers are in.
struct Turn {
  int place = 0;
  unsigned int parity = 0;
  __device__ __forceinline__ void next(int count) {
    if (++place == count) {
      place = 0;
      parity ^= 1;
    }
  }
};

template <Type kType, int C, int kRows, bool kLayer, Spread kSpread>
class Strips {
 public:
  static constexpr int kSums = kLayer ? 2 : 1;
  static constexpr int K = kRows * kSums;  // sums of a tile
  static constexpr int kWidth = padded(C);
  static constexpr bool kNarrow = kSpread == Spread::kNarrow;
  static constexpr int kCluster = kSpread == Spread::kCluster ? 2 : 1;

  __device__ __forceinline__ Strips(const spec::BackwardCall& call, const StripsShape& with, std::byte* shared)
      : p(call),
        shape(with),
        full(reinterpret_cast<Barrier*>(shared)),
        empty(full + kMaxStages),
        summed(empty + kMaxStages),
        sums(reinterpret_cast<float*>(summed + 4)),
        ring(reinterpret_cast<std::byte*>(sums + 3 * kTileSums)),
        rank(kCluster > 1 ? static_cast<int>(cluster_rank()) : 0),
        strips(static_cast<int>(spec::strips(call.n))),
        m(static_cast<int>(call.m)),
        n(static_cast<int>(call.n)) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    begin = rank * shape.columns;
    own = n - begin < shape.columns ? n - begin : shape.columns;
    if constexpr (kNarrow) {
      slot = threadIdx.x >> shape.log_lanes;
      first = (lane & ((1 << shape.log_lanes) - 1)) * kChunk;
      step = 32 * kChunk;
    } else {
      slot = 0;
      first = (warp * 32 + lane) * kChunk;
      step = blockDim.x * kChunk;
      const int warps = blockDim.x >> 5;
      while (each * kLanes < kCluster * warps * C) each *= 2;
      const int sum = lane / kWidth, c = lane % kWidth;  // that this lane ends with, of this warp's
      sum_place = sum * kLanes * each + (rank * C + c) * warps + warp;
    }
    dy_bytes = shape.columns * bytes_each<kType>(p.dy.type);
    s_bytes = shape.columns * bytes_each<kType>(p.s.type);
    ds_bytes = p.ds.present ? shape.columns * bytes_each<kType>(p.ds.type) : 0;
    tile_bytes = (dy_bytes + s_bytes + ds_bytes) * shape.strips * kRows;
  }

  __device__ __forceinline__ void run() {
    float w[C][kChunk];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int at = first + c * step;
      load_packed<true>(p.weight, at < own ? n : 0, begin + at)
          .weights(p.weight, spec::effective_offset(p.offset), w[c]);
    }
    for (int i = threadIdx.x; i < 3 * kTileSums; i += blockDim.x) sums[i] = 0.0f;
    if (!kNarrow && own < shape.columns) clear_ring();
    if (threadIdx.x == 0) {
      for (int i = 0; i < shape.stages; ++i) {
        barrier_init(&full[i], 1);
        barrier_init(&empty[i], blockDim.x / 32);
      }
      // The other thread block of a cluster stores its sums here; one more arrival says how many bytes they are.
      for (int i = 0; i < 3; ++i) barrier_init(&summed[i], blockDim.x / 32 + (kCluster > 1 ? 1 : 0));
      barrier_init_done();
    }
    kCluster > 1 ? cluster_sync() : __syncthreads();
    const int clusters = gridDim.x / kCluster;
    for (int group = blockIdx.x / kCluster; group < shape.groups; group += clusters) {
      base = group * shape.strips;
      const int tiles = (m - base - 1) / (strips * kRows) + 1;
#pragma unroll
      for (int c = 0; c < C; ++c) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) dweight[c][i] = dbias[c][i] = 0.0f;
      }
      const bool last = group + clusters >= shape.groups;
      if constexpr (kNarrow) {
        run_narrow(w, tiles, group, last);
      } else {
        run_wide(w, tiles, group, last);
      }
    }
    if (shape.partials == nullptr) return;
    grid_wait(shape.counter, gridDim.x);
    // Every thread block has had a group: there are no more of them than groups.
    const float* partials = shape.partials;
    auto* const scratch = reinterpret_cast<float*>(ring);
    if (p.dweight.present) {
      final_sum(p.dweight, partials, n, shape.groups, n, scratch);
      partials += std::int64_t{shape.groups} * n;
    }
    if (p.dbias.present) final_sum(p.dbias, partials, n, shape.groups, n, scratch);
  }

 private:
  struct Statistics {
    float mean[kRows], rstd[kRows];
  };

  // Row b of tile k of this thread's strip.
  __device__ __forceinline__ int row(int k, int b) const { return base + slot + (k * kRows + b) * strips; }

  // ---- The ring.

  __device__ __forceinline__ static bool dense(const Rows& t, std::int64_t m, std::int64_t row_bytes) {
    return t.inner_stride == row_bytes && t.inner >= m;
  }

  __device__ __forceinline__ std::byte* tile_at(const Turn& at) const { return ring + at.place * tile_bytes; }

  // Sends tile k on its way to a place; one warp.
  __device__ __forceinline__ void fill(int k, int stage) {
    const int lane = threadIdx.x & 31;
    std::byte* const tile = ring + stage * tile_bytes;
    const int first_row = base + k * kRows * strips;
    int rows = 0;  // of all that are there
    if (lane == 0) {
#pragma unroll
      for (int b = 0; b < kRows; ++b) rows += rows_at(first_row + b * strips);
      const int each = bytes_each<kType>(p.dy.type) + bytes_each<kType>(p.s.type) +
                       (p.ds.present ? bytes_each<kType>(p.ds.type) : 0);
      barrier_arrive_expecting(&full[stage], static_cast<unsigned int>(rows * own * each));
    }
    __syncwarp();
    fill_matrix(p.dy, dy_bytes, first_row, tile, stage);
    fill_matrix(p.s, s_bytes, first_row, tile + dy_bytes * shape.strips * kRows, stage);
    if (p.ds.present) {
      fill_matrix(p.ds, ds_bytes, first_row, tile + (dy_bytes + s_bytes) * shape.strips * kRows, stage);
    }
  }
  __device__ __forceinline__ int rows_at(int row) const {
    const int left = m - row;
    return left <= 0 ? 0 : left < shape.strips ? left : shape.strips;
  }
  __device__ __forceinline__ void fill_matrix(const Rows& t, int row_bytes, int first_row, std::byte* to, int stage) {
    const int lane = threadIdx.x & 31;
    const int size = bytes_each<kType>(t.type);
    const unsigned int bytes = own * size;
    if (!kNarrow || dense(t, p.m, row_bytes)) {  // one copy for the rows of each b
      if (lane < kRows) {
        const int r = first_row + lane * strips;
        const int rows = rows_at(r);
        if (rows > 0) {
          bulk_load(to + lane * row_bytes * shape.strips, row_at<true>(t, r) + std::int64_t{begin} * size, rows * bytes,
                    &full[stage]);
        }
      }
    } else if constexpr (kNarrow) {
      for (int i = lane; i < kRows * shape.strips; i += 32) {
        const int b = i / shape.strips, l = i - b * shape.strips;
        const int r = first_row + b * strips + l;
        if (r < m) bulk_load(to + i * row_bytes, row_at<true>(t, r), bytes, &full[stage]);
      }
    }
  }

  // ---- A tile.

  __device__ __forceinline__ void load_statistics(int k, Statistics& of) const {
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const int r = row(k, b);
      const bool there = r < m;
      of.rstd[b] = there ? __ldg(p.rstd + r) : 0.0f;
      of.mean[b] = kLayer && there ? __ldg(p.mean + r) : 0.0f;
    }
  }

  // Chunk c of row b of a matrix in a tile; past the row's end it is zeros. Wide rows have zeros there (clear_ring).
  __device__ __forceinline__ Chunk<kType> chunk(const Rows& t, const std::byte* tile, int row_bytes, int b,
                                                int c) const {
    if (kNarrow && first + c * step >= own) return {};
    return load_whole<kType>(
        t.type, tile + (b * shape.strips + slot) * row_bytes + (first + c * step) * bytes_each<kType>(t.type));
  }

  // A chunk's terms of the sums of row b, and its share of the weight gradients.
  __device__ __forceinline__ void terms(const std::byte* tile, int b, int c, const float (&w)[kChunk],
                                        const Statistics& of, float& slope, float& shift) {
    float g[kChunk], d[kChunk], t[kChunk];
    products<kType, kLayer>(chunk(p.dy, tile, dy_bytes, b, c),
                            chunk(p.s, tile + dy_bytes * shape.strips * kRows, s_bytes, b, c), of.mean[b], g, d, t);
    slope = chunk_products(t, w);
    if constexpr (kLayer) shift = chunk_products(g, w);
    add_row<kType, kLayer>(p, g, d, t, of.rstd[b], dweight[c], dbias[c]);
  }

  // The gradient of row b of tile k.
  __device__ __forceinline__ void gradient(const std::byte* tile, int k, int b, const float (&w)[C][kChunk],
                                           const RowSlopes& of) const {
    const int r = row(k, b);
    if (r >= m) return;
    const int dx_size = bytes_each<kType>(p.dx.type), dresidual_size = bytes_each<kType>(p.dresidual.type);
    std::byte *dx = nullptr, *dresidual = nullptr;
    if (p.dx.present) dx = row_at<true>(p.dx, r) + (begin + first) * dx_size;
    if (p.dresidual.present) dresidual = row_at<true>(p.dresidual, r) + (begin + first) * dresidual_size;
    const std::byte* const s_tile = tile + dy_bytes * shape.strips * kRows;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (first + c * step >= own) continue;
      const Chunk<kType> dy = chunk(p.dy, tile, dy_bytes, b, c), s = chunk(p.s, s_tile, s_bytes, b, c);
      float out[kChunk];
      if (p.ds.present) {
        float d[kChunk];
        chunk(p.ds, s_tile + s_bytes * shape.strips * kRows, ds_bytes, b, c).values(d);
        gradient_values<kType, kLayer>(
            dy, s, w[c], of, [&](int i) { return d[i]; }, out);
      } else {
        gradient_values<kType, kLayer>(dy, s, w[c], of, out);
      }
      if (p.dx.present) store_whole<kType>(p.dx.type, dx + c * step * dx_size, out);
      if (p.dresidual.present) store_whole<kType>(p.dresidual.type, dresidual + c * step * dresidual_size, out);
    }
  }

  // All warps take turns at keeping the ring full: tile `refill` goes where an earlier one was.
  __device__ __forceinline__ void keep_full(const Turn& used, int refill, int tiles) {
    const bool mine = turn == static_cast<int>(threadIdx.x >> 5);
    if (++turn == static_cast<int>(blockDim.x >> 5)) turn = 0;
    if (refill >= tiles || !mine) return;
    barrier_wait(&empty[used.place], used.parity);
    fill(refill, used.place);
  }

  // Where rows end before their place does, what is read past them is zeros. (No copy ever writes there.)
  __device__ __forceinline__ void clear_ring() {
    for (int i = threadIdx.x * 16; i < shape.stages * tile_bytes; i += blockDim.x * 16) {
      *reinterpret_cast<uint4*>(ring + i) = make_uint4(0u, 0u, 0u, 0u);
    }
    bulk_load_over_stores();
  }

  __device__ __forceinline__ void start_ring(int tiles) {
    if (threadIdx.x >= 32) return;
    Turn at = stage;
    for (int k = 0; k < shape.stages && k < tiles; ++k, at.next(shape.stages)) fill(k, at.place);
  }

  // ---- Wide rows.

  __device__ __forceinline__ void run_wide(const float (&w)[C][kChunk], int tiles, int group, bool last) {
    const int lane = threadIdx.x & 31;
    Statistics now, next{}, before{};
    load_statistics(0, next);
    start_ring(tiles);
    Turn used = stage, earlier = stage, used_sums = summing;
    for (int k = 0; k < tiles; ++k) {
      now = next;
      if (k + 1 < tiles) load_statistics(k + 1, next);
      barrier_wait(&full[stage.place], stage.parity);
      tile_sums(tile_at(stage), k, w, now);
      if (k > 0) {
        tile_gradients(tile_at(used), k - 1, w, before, used_sums);
        __syncwarp();
        if (lane == 0) barrier_arrive(&empty[used.place]);
      }
      // The tile before that has most likely been used by all by now.
      if (k > 1) keep_full(earlier, k - 2 + shape.stages, tiles);
      earlier = used;
      used = stage;
      used_sums = summing;
      stage.next(shape.stages);
      summing.next(3);
      before = now;
    }
    if (shape.partials != nullptr) publish_registers(group, last);
    tile_gradients(tile_at(used), tiles - 1, w, before, used_sums);
    __syncwarp();
    if (lane == 0) barrier_arrive(&empty[used.place]);
    if (!last) __syncthreads();  // the ring is free for the next group
  }

  // Lanes that share one of a tile's sums. Each has `each` of the row's blocks. A tile's sums lie in the place of those
  // three tiles before, which everybody has used: nobody is two tiles ahead of somebody whose sums it needs.
  static constexpr int kLanes = 32 / K;

  __device__ __forceinline__ void tile_sums(const std::byte* tile, int k, const float (&w)[C][kChunk],
                                            const Statistics& of) {
    const int lane = threadIdx.x & 31;
    float part[K * kWidth] = {};
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      if (row(k, b) < m) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          terms(tile, b, c, w[c], of, part[b * kSums * kWidth + c], part[(b * kSums + kSums - 1) * kWidth + c]);
        }
      }
    }
    lane_trees<K * kWidth>(part, 32);
    if (lane < K * kWidth && lane % kWidth < C) {
      float* const place = sums + summing.place * kTileSums + sum_place;
      *place = part[0];
      if constexpr (kCluster > 1) store_at_rank(place, &summed[summing.place], rank ^ 1, part[0]);
    }
    if constexpr (kCluster > 1) {
      if (threadIdx.x == 0) {
        barrier_arrive_expecting(&summed[summing.place], K * C * (blockDim.x >> 5) * sizeof(float));
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&summed[summing.place]);
  }

  __device__ __forceinline__ void tile_gradients(const std::byte* tile, int k, const float (&w)[C][kChunk],
                                                 const Statistics& of, const Turn& at) const {
    const int lane = threadIdx.x & 31;
    barrier_wait(&summed[at.place], at.parity);
    const auto from = [from = sums + at.place * kTileSums + lane * each](int i) { return from[i]; };
    float v;
    switch (each) {
      case 1: v = from(0); break;
      case 2: v = tree<2>(from); break;
      case 4: v = tree<4>(from); break;
      default: v = tree<8>(from); break;
    }
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) v = Scalar::add(v, from_lane_xor(v, mask));
    v = Scalar::add(v, 0.0f);
    const int sum = lane / kLanes;
    float rstd = of.rstd[0];
#pragma unroll
    for (int b = 0; b < kRows; ++b) rstd = sum / kSums == b ? of.rstd[b] : rstd;
    const auto n_float = static_cast<float>(n);
    const float minus_slope = spec::minus_slope_of(v, n_float, rstd);
    const float shift = kLayer ? spec::shift_of(v, n_float) : 0.0f;
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      RowSlopes row_of{of.mean[b], of.rstd[b], 0.0f, 0.0f};
      row_of.minus_slope = __shfl_sync(kAllLanes, minus_slope, b * kSums * kLanes);
      if constexpr (kLayer) row_of.shift = __shfl_sync(kAllLanes, shift, (b * kSums + 1) * kLanes);
      gradient(tile, k, b, w, row_of);
    }
  }
  // This group's partial sums, to where all thread blocks see them.
  __device__ __forceinline__ void publish_registers(int group, bool last) {
    float* to = shape.partials + std::int64_t{group} * n + begin;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      if (which == 0 ? !p.dweight.present : !p.dbias.present) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int at = first + c * step;
        const float(&v)[kChunk] = which == 0 ? dweight[c] : dbias[c];
        if (at < own) {
          __stcg(reinterpret_cast<float4*>(to + at), make_float4(v[0], v[1], v[2], v[3]));
          __stcg(reinterpret_cast<float4*>(to + at) + 1, make_float4(v[4], v[5], v[6], v[7]));
        }
      }
      to += std::int64_t{shape.groups} * n;
    }
    if (last) grid_arrive(shape.counter, gridDim.x);
  }

  // ---- Narrow rows.

  __device__ __forceinline__ void run_narrow(const float (&w)[C][kChunk], int tiles, int group, bool last) {
    const int lane = threadIdx.x & 31;
    Statistics next{};
    load_statistics(0, next);
    start_ring(tiles);
    Turn used = stage;
    for (int k = 0; k < tiles; ++k) {
      const Statistics now = next;
      if (k + 1 < tiles) load_statistics(k + 1, next);
      barrier_wait(&full[stage.place], stage.parity);
      narrow_tile(tile_at(stage), k, w, now);
      __syncwarp();
      if (lane == 0) barrier_arrive(&empty[stage.place]);
      // The tile before has most likely been used by all by now.
      if (k > 0) keep_full(used, k - 1 + shape.stages, tiles);
      used = stage;
      stage.next(shape.stages);
    }
    __syncthreads();  // the ring is free
    if (shape.partials != nullptr) publish_narrow(group, last);
  }

  __device__ __forceinline__ void narrow_tile(const std::byte* tile, int k, const float (&w)[C][kChunk],
                                              const Statistics& of) {
    float part[K * kWidth] = {}, total[K];
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      if (row(k, b) < m) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          terms(tile, b, c, w[c], of, part[b * kSums * kWidth + c], part[(b * kSums + kSums - 1) * kWidth + c]);
        }
      }
    }
    if constexpr (C == 1) {
      const int lanes = 1 << shape.log_lanes;
#pragma unroll
      for (int j = 0; j < K; ++j) {
        float one[1] = {part[j]};
        lane_trees<1>(one, lanes);
        total[j] = one[0];
      }
    } else {
      lane_trees<K * kWidth>(part, 32);
      float v = part[0];
#pragma unroll
      for (int mask = 1; mask < kWidth; mask *= 2) v = Scalar::add(v, from_lane_xor(v, mask));
#pragma unroll
      for (int j = 0; j < K; ++j) total[j] = K == 1 ? v : __shfl_sync(kAllLanes, v, j * kWidth);
    }
    const auto n_float = static_cast<float>(n);
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      RowSlopes row_of{of.mean[b], of.rstd[b], 0.0f, 0.0f};
      finish_slopes<kLayer>(Scalar::add(total[b * kSums], 0.0f), Scalar::add(total[b * kSums + kSums - 1], 0.0f),
                            n_float, row_of);
      gradient(tile, k, b, w, row_of);
    }
  }

  // The tree over the thread block's own strips, which are neighbours, in the ring's place; then as publish_registers.
  __device__ __forceinline__ void publish_narrow(int group, bool last) {
    auto* const held = reinterpret_cast<float*>(ring);
    float* to = shape.partials + std::int64_t{group} * n;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      if (which == 0 ? !p.dweight.present : !p.dbias.present) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int at = first + c * step;
        const float(&v)[kChunk] = which == 0 ? dweight[c] : dbias[c];
        if (at < own) {
          auto* const place = reinterpret_cast<float4*>(held + slot * n + at);
          place[0] = make_float4(v[0], v[1], v[2], v[3]);
          place[1] = make_float4(v[4], v[5], v[6], v[7]);
        }
      }
      __syncthreads();
      for (int count = shape.strips; count > 1; count /= 4) {
        // Two levels at once: strips 4i .. 4i + 3 into the place of 4i's first.
        const int stride = shape.strips / count * n, half = count / 2, quarter = count > 2 ? count / 4 : 1;
        for (int i = threadIdx.x; i < quarter * n; i += blockDim.x) {
          const int strip = i / n, column = i - strip * n;
          if (half == 1) {
            held[column] = Scalar::add(held[column], held[stride + column]);
          } else {
            float* const at = held + 4 * strip * stride + column;
            *at = Scalar::add(Scalar::add(at[0], at[stride]), Scalar::add(at[2 * stride], at[3 * stride]));
          }
        }
        __syncthreads();
        if (half == 1) break;
      }
      for (int i = threadIdx.x; i < n; i += blockDim.x) __stcg(to + i, held[i]);
      bulk_load_over_stores();
      __syncthreads();
      to += std::int64_t{shape.groups} * n;
    }
    if (last) grid_arrive(shape.counter, gridDim.x);
  }

  const spec::BackwardCall& p;
  const StripsShape& shape;
  Barrier *const full, *const empty, *const summed;
  float* const sums;
  std::byte* const ring;
  const int rank;
  const int strips, m, n;
  int begin, own;  // this thread block's columns
  int slot, first, step;
  int dy_bytes, s_bytes, ds_bytes, tile_bytes;
  int base = 0;         // the group's first strip, and row
  Turn stage, summing;  // of the tile at hand
  int turn = 0;         // the warp that fills the ring next
  int each = 1, sum_place = 0;
  float dweight[C][kChunk], dbias[C][kChunk];
};

template <Type kType, int C, int kRows, bool kLayer, Spread kSpread>
__global__ void __launch_bounds__(strips_threads(C), 1)
    backward_strips_kernel(const __grid_constant__ spec::BackwardCall p, const __grid_constant__ StripsShape shape) {
  extern __shared__ __align__(128) std::byte memory[];
  Strips<kType, C, kRows, kLayer, kSpread>(p, shape, memory).run();
}

}  // namespace truenorm::cuda
