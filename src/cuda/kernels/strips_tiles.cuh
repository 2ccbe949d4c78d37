// A thread's tiles in shared memory, for backward_strips.cuh: which rows and columns are its own, how their copies get
// there, and how they are read.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/tuning/strips.hpp"

namespace truenorm::cuda {

// What a launch is given: first what every thread needs, close together.
struct StripsArgs {
  struct Matrix {
    std::byte* data;
    std::int64_t stride, step;  // bytes from a row to the next, and to the strip's next
  };
  Matrix dy, s, ds, dx;  // dx: the first of the outputs
  const float *rstd, *mean;
  int m, n, pitch, strips, groups, log_lanes, teams, team_warps, columns;
  Type dx_type;
  bool in_order;          // all matrices have their rows at equal distances: `stride` is all there is to know
  bool two_outputs;       // dresidual as well as dx
  bool plain;             // the usual gradients of vectors, and no others
  bool early;             // the launch may begin before the one before it has finished
  float* partials;        // [dweight?, dbias?][groups][pitch]; null where neither is asked for
  unsigned int* counter;  // zero before and after
  spec::BackwardCall call;
};

// ---- Rows that start anywhere, or end within a chunk: element by element, out of the way of the usual code.

// `count` elements to a thread's place of a chunk, and zeros after them; what comes `plane` bytes on are FP32's second
// halves.
__device__ __noinline__ inline void copy_part(std::byte* to, int plane, const std::byte* from, int count, Type type) {
  if (type == Type::f32) {
    for (int i = 0; i < kChunk; ++i) {
      const float v = i < count ? reinterpret_cast<const float*>(from)[i] : 0.0f;
      reinterpret_cast<float*>(to + (i < 4 ? 0 : plane))[i & 3] = v;
    }
  } else {
    for (int i = 0; i < kChunk; ++i) {
      reinterpret_cast<unsigned short*>(to)[i] = i < count ? reinterpret_cast<const unsigned short*>(from)[i] : 0;
    }
  }
}

__device__ __noinline__ inline void store_part(std::byte* to, int count, Type type, float4 low, float4 high) {
  const float v[kChunk] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (i < count) store1(type, to, i, v[i]);
  }
}

template <Type kType, int C, int kRows, bool kLayer, bool kAdd, Team kTeam, bool kWhole>
struct StripsTiles {
  static constexpr bool kSingle = kType == Type::f32;
  static constexpr bool kWarp = kTeam == Team::kWarp;
  static constexpr int kCluster = kTeam == Team::kCluster ? 2 : 1;
  static constexpr int kLag = strips_lag(C, kSingle, kAdd, kTeam);
  static constexpr int kStages = strips_stages(C, kSingle, kAdd, kTeam);
  static constexpr int kStep = 32 * kChunk;  // columns from a chunk of a thread to its next

  // Shared memory: sums, scratch, tiles, statistics.
  static constexpr int kSumsBytes = static_cast<int>(strips_sums_bytes(kTeam));
  static constexpr int kScratchBytes = static_cast<int>(strips_scratch_bytes(C, kSingle, kTeam));
  static constexpr int kStatisticsBytes = static_cast<int>(strips_statistics_bytes(C, kSingle, kTeam));
  static constexpr int kTileBytes = static_cast<int>(strips_tile_bytes(C, kRows, kSingle, kAdd, kTeam));
  static constexpr int kPlane = strips_threads(C, kSingle, kTeam) * 16;  // 16 bytes for each thread
  static constexpr int kHalves = kSingle ? 2 : 1;                        // planes of a chunk
  static constexpr int kMatrix = kRows * C * kHalves * kPlane;

  __device__ __forceinline__ StripsTiles(const StripsArgs& args, std::byte* memory)
      : a(args),
        p(args.call),
        thread(thread_index()),
        lane(thread & 31),
        warp(thread >> 5),
        tiles_at(memory + kSumsBytes + kScratchBytes + thread * 16),
        statistics(reinterpret_cast<float*>(memory + kSumsBytes + kScratchBytes + kStages * kTileBytes) + warp * 32) {
    if constexpr (kWarp) {
      slot = thread >> a.log_lanes;
      first = (lane & ((1 << a.log_lanes) - 1)) * kChunk;
      own = a.n;
    } else {
      slot = kTeam == Team::kHalf && warp >= a.team_warps ? 1 : 0;
      member = warp - slot * a.team_warps;
      first = (member * C * 32 + lane) * kChunk;
      if constexpr (kCluster > 1) begin = static_cast<int>(cluster_rank()) * a.columns;
      own = a.n - begin < a.columns ? a.n - begin : a.columns;
    }
  }

  struct Statistics {
    float mean[kRows], rstd[kRows];
  };

  __device__ __forceinline__ bool has(int c) const { return first + c * kStep < own; }
  __device__ __forceinline__ std::int64_t column_bytes(Type type) const {
    return std::int64_t{begin + first} * bytes_each<kType>(type);
  }
  __device__ __forceinline__ static std::byte* of_row(const StripsArgs::Matrix& t, int r) {
    return t.data + r * t.stride;
  }

  // The strips of a group: this thread's.
  __device__ __forceinline__ void start_tiles(int group) {
    const int base = group * a.teams * (32 >> a.log_lanes) + slot;
    // A warp's lanes go together, as far as its first strip.
    const int leader = kWarp ? base - (lane >> a.log_lanes) : base;
    tiles = leader < a.m ? (a.m - leader - 1) / (a.strips * kRows) + 1 : 0;
    row = base;
    dy = of_row(a.dy, base) + column_bytes(p.dy.type);
    s = of_row(a.s, base) + column_bytes(p.s.type);
    if constexpr (kAdd) ds = of_row(a.ds, base) + column_bytes(p.ds.type);
    dx = of_row(a.dx, base) + column_bytes(a.dx_type);
  }

  __device__ __forceinline__ const std::byte* tile_at(int where) const { return tiles_at + where * kTileBytes; }
  __device__ __forceinline__ int next_place() const { return place + 1 == kStages ? 0 : place + 1; }

  // Copies what this thread has of tile k, the next one (or the first, to the place that is at hand).
  __device__ __forceinline__ void fetch(int k) {
    if (k < tiles) {
      const int there = k == 0 ? place : next_place();
      int r = k == 0 ? row : row + kRows * a.strips;
      int to = there * kTileBytes;
      // A few lanes copy their warp's statistics.
      const int log_slots = kWarp ? 5 - a.log_lanes : 0;
      const int r_of_lane =
          r - (kWarp ? lane >> a.log_lanes : 0) + (lane & ((1 << log_slots) - 1)) + (lane >> log_slots) * a.strips;
      if (lane < kRows << log_slots && r_of_lane < a.m) {
        const unsigned int at_word = shared_address(statistics + lane) + there * kStatisticsBytes;
        copy_word_async(at_word, a.rstd + r_of_lane);
        if constexpr (kLayer) copy_word_async(at_word + 64, a.mean + r_of_lane);
      }
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
        if (r >= a.m) break;
        if (!a.in_order) look_up(r);
        copy_row(to, dy, p.dy.type);
        copy_row(to + kMatrix, s, p.s.type);
        if constexpr (kAdd) copy_row(to + 2 * kMatrix, ds, p.ds.type);
        dy += a.dy.step;
        s += a.s.step;
        if constexpr (kAdd) ds += a.ds.step;
        r += a.strips;
        to += C * kHalves * kPlane;
      }
    }
    copies_commit();
  }

  // Where row r is, if rows are not at equal distances.
  __device__ __forceinline__ void look_up(int r) {
    dy = row_at<true>(p.dy, r) + column_bytes(p.dy.type);
    s = row_at<true>(p.s, r) + column_bytes(p.s.type);
    if constexpr (kAdd) ds = row_at<true>(p.ds, r) + column_bytes(p.ds.type);
  }

  __device__ __forceinline__ void copy_row(int to, const std::byte* from, Type type) const {
    const unsigned int shared = shared_address(tiles_at) + to;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (!has(c)) continue;
      const int size = bytes_each<kType>(type), left = own - first - c * kStep;
      if (!kWhole && (left < kChunk || !aligned16(from + c * kStep * size))) {
        copy_part(tiles_at + to + c * kHalves * kPlane, kPlane, from + c * kStep * size, left, type);
      } else if (size == 2) {
        copy_async(shared + c * kHalves * kPlane, from + c * kStep * 2);
      } else {
        copy_async(shared + c * kHalves * kPlane, from + c * kStep * 4);
        copy_async(shared + c * kHalves * kPlane + kPlane, from + c * kStep * 4 + 16);
      }
    }
  }

  // Stores chunk c of a row.
  __device__ __forceinline__ void store(Type type, std::byte* to, int c, const float (&v)[kChunk]) const {
    const int left = own - first - c * kStep;
    if (!kWhole && (left < kChunk || !aligned16(to))) {
      store_part(to, left, type, make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7]));
    } else {
      store_whole<kType>(type, to, v);
    }
  }

  // Chunk c of row b of a matrix (0: dy, 1: s, 2: ds).
  __device__ __forceinline__ Chunk<kType> chunk(const std::byte* tile, int matrix, int b, int c, Type type) const {
    const std::byte* const from = tile + matrix * kMatrix + (b * C + c) * kHalves * kPlane;
    const uint4 low = *reinterpret_cast<const uint4*>(from);
    Chunk<kType> v;
    if constexpr (!kSingle) {
      v.raw = low;
    } else if (type == Type::f32) {
      const uint4 high = *reinterpret_cast<const uint4*>(from + kPlane);
      v.v[0] = __uint_as_float(low.x), v.v[1] = __uint_as_float(low.y), v.v[2] = __uint_as_float(low.z);
      v.v[3] = __uint_as_float(low.w), v.v[4] = __uint_as_float(high.x), v.v[5] = __uint_as_float(high.y);
      v.v[6] = __uint_as_float(high.z), v.v[7] = __uint_as_float(high.w);
    } else {
      widen8(type, low, v.v);
    }
    return v;
  }

  // The statistics of a tile's rows, of this thread's strip.
  __device__ __forceinline__ void read_statistics(int where, Statistics& of) const {
    const float* const from = statistics + where * kStatisticsBytes / sizeof(float) + (kWarp ? lane >> a.log_lanes : 0);
    const int log_slots = kWarp ? 5 - a.log_lanes : 0;
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      of.rstd[b] = from[b << log_slots];
      of.mean[b] = kLayer ? from[(b << log_slots) + 16] : 0.0f;
    }
  }

  const StripsArgs& a;
  const spec::BackwardCall& p;
  const int thread, lane, warp;
  std::byte* const tiles_at;    // this thread's
  float* const statistics;      // this warp's: of each stage 16 values of rstd, 16 of mean
  int slot;                     // this thread's strip, of the thread block's
  int member = 0;               // this warp, of its team's
  int first, begin = 0, own;    // columns: this thread's first, the thread block's first and number
  int tiles, row;               // of this thread's strip: its tiles, the first row of the one at hand
  int place = 0;                // of the tile at hand
  std::byte *dy, *s, *ds, *dx;  // this thread's columns of rows to come
};

}  // namespace truenorm::cuda
