// A thread's tiles in shared memory, for backward_strips.cuh: which rows and columns are its own, how their copies get
// there, and how they are read.
#pragma once

#include "cuda/device/anywhere.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/tile_places.cuh"
#include "cuda/tuning/strips.hpp"

namespace truenorm::cuda {

// What a launch is given: first what the first copies need, close together, for constants come from memory too.
struct StripsArgs {
  struct Matrix {
    std::byte* data;
    std::int64_t stride, step;  // bytes from a row to the next, and to the strip's next
  };
  Matrix dy, s;
  int m, n, strips, log_strips, log_lanes, teams, team_warps, columns;
  int tiles_by_threads;  // the first tiles of a strip, which each thread copies its part of
  Vec weight;
  const float *rstd, *mean;
  float offset;      // as effective_offset gives it
  bool in_order;     // all matrices have their rows at equal distances: `stride` is all there is to know
  bool two_outputs;  // dresidual as well as dx
  bool plain;        // the usual gradients of vectors, and no others
  bool early;        // the call may begin before the one before it has finished
  bool large;        // large copies bring the other tiles
  Matrix dx, ds;     // dx: the first of the outputs
  Type dx_type;
  int pitch, groups;
  float* partials;        // [dweight?, dbias?][groups][pitch]; null where neither is asked for
  unsigned int* counter;  // zero before and after
  spec::BackwardCall call;
};

// Where a row lies, if rows are not at equal distances. Out of line: few calls have such rows.
struct StripsRow {
  const std::byte *dy, *s, *ds;
};
__device__ __noinline__ inline StripsRow row_by_row(const spec::BackwardCall& p, int r) {
  return {row_at<true>(p.dy, r), row_at<true>(p.s, r), p.ds.present ? row_at<true>(p.ds, r) : nullptr};
}

// The kernel for matrices kept as kType.
constexpr StripsKernel strips_kernel(Type type, int chunks, bool layer, bool add, Team team, bool whole,
                                     bool few_warps) {
  return {chunks, team, type == Type::f32, layer, add, whole, few_warps};
}

template <Type kType, int C, bool kLayer, bool kAdd, Team kTeam, bool kWhole, bool kFew>
struct StripsTiles {
  static constexpr StripsKernel kKernel = strips_kernel(kType, C, kLayer, kAdd, kTeam, kWhole, kFew);
  static constexpr bool kSingle = kType == Type::f32;
  static constexpr bool kWarp = kTeam == Team::kWarp;
  static constexpr int kRows = kKernel.rows(), kCluster = kKernel.cluster();
  static constexpr int kLag = kKernel.lag(), kStages = kKernel.stages();
  static constexpr int kStep = 32 * kChunk;  // columns from a chunk of a thread to its next
  // Lanes store FP32 in pairs where memory is what is waited for, and not instructions.
  static constexpr bool kPairs = kSingle && kWhole && (kTeam == Team::kBlock || kTeam == Team::kCluster);
  static constexpr int kNothing = kPairs ? -kChunk : 0;  // what a lane has left of a row that is not there

  static constexpr bool kByRows = kKernel.by_rows();
  static constexpr bool kLargeCopies = kKernel.large_copies() && kHasClusters;

  static constexpr int kTiles = kKernel.sums_bytes() + kKernel.scratch_bytes();  // in shared memory
  static constexpr int kStatisticsBytes = kKernel.statistics_bytes();
  static constexpr int kTileBytes = kKernel.tile_bytes(), kMatrix = kKernel.matrix_bytes();
  static constexpr int kOfChunk = kKernel.chunk_bytes();

  __device__ __forceinline__ StripsTiles(const StripsArgs& args, std::byte* memory)
      : a(args),
        p(args.call),
        thread(thread_index()),
        lane(thread & 31),
        warp(thread >> 5),
        lanes(kWarp && C == 1 ? 1 << a.log_lanes : 32),
        in_run(lane & (lanes - 1)),
        places(reinterpret_cast<Barrier*>(memory + kKernel.sums_bytes() - kCopyBarriers)),
        tiles_at(memory + kTiles + in_tile()),
        to_tiles(in_register(shared_address(tiles_at))),
        statistics(reinterpret_cast<float*>(memory + kTiles + kStages * kTileBytes) + warp * 32) {
    if constexpr (kWarp) {
      slot = thread >> a.log_lanes;
      first = in_run * kChunk;
      own = a.n;
    } else {
      slot = kTeam == Team::kHalf && warp >= a.team_warps ? 1 : 0;
      member = warp - slot * a.team_warps;
      first = (member * C * 32 + lane) * kChunk;
      if constexpr (kCluster > 1) begin = static_cast<int>(cluster_rank()) * a.columns;
      own = a.n - begin < a.columns ? a.n - begin : a.columns;
    }
  }

  // Where in a tile this thread's first sixteen bytes are; 0 of FP32 by rows, where that depends on the operand's type.
  __device__ __forceinline__ int in_tile() const {
    if constexpr (kByRows) return kSingle ? 0 : (warp * C * 32 + lane) * 16;
    if constexpr (!kWhole) return thread / lanes * run_bytes(lanes);
    return (kSingle ? 2 * thread - in_run : thread) * 16;
  }

  struct Statistics {
    float mean[kRows], rstd[kRows];
  };

  __device__ __forceinline__ bool has(int c) const { return first + c * kStep < own; }
  // Of this thread's first column; where rows start anywhere, of its run's.
  __device__ __forceinline__ std::int64_t column_bytes(Type type) const {
    return std::int64_t{begin + first - (kWhole ? 0 : in_run * kChunk)} * bytes_each<kType>(type);
  }
  __device__ __forceinline__ static std::byte* of_row(const StripsArgs::Matrix& t, int r) {
    return t.data + r * t.stride;
  }

  // Lanes of a run, which have neighbouring chunks, copy together: lane l sixteen bytes at l times sixteen. A type of
  // 16 bits has as many lanes as there are sixteen bytes; FP32 has twice as many, half of them for a second turn.
  __device__ __forceinline__ static bool two_turns(Type type) { return kSingle && type == Type::f32; }
  __device__ __forceinline__ int column_to_copy(Type type) const {
    if constexpr (!kWhole) return first - in_run * kChunk;  // copy_run has the run's beginning
    return first - (two_turns(type) ? in_run * (kChunk / 2) : 0);
  }
  __device__ __forceinline__ std::int64_t bytes_to_copy(Type type) const {
    return std::int64_t{begin + column_to_copy(type)} * bytes_each<kType>(type);
  }

  // The strips of a group: this thread's.
  __device__ __forceinline__ void start_tiles(int group) {
    const int base = group * a.teams * (32 >> a.log_lanes) + slot;
    // A warp's lanes go together, as far as its first strip.
    const int leader = kWarp ? base - (lane >> a.log_lanes) : base;
    constexpr int kLogRows = kRows == 4 ? 2 : kRows - 1;
    tiles = leader < a.m ? ((a.m - leader - 1) >> (a.log_strips + kLogRows)) + 1 : 0;
    row = base;
    dy = of_row(a.dy, base) + bytes_to_copy(p.dy.type);
    s = of_row(a.s, base) + bytes_to_copy(p.s.type);
    if constexpr (kAdd) ds = of_row(a.ds, base) + bytes_to_copy(p.ds.type);
    dx = of_row(a.dx, base) + column_bytes(a.dx_type);
  }

  __device__ __forceinline__ const std::byte* tile_at(int where) const { return tiles_at + where * kTileBytes; }
  __device__ __forceinline__ int next_place() const { return place + 1 == kStages ? 0 : place + 1; }

  // Copies this thread's share of tile k, which is the one at hand (`ahead` 0) or the next (1).
  __device__ __forceinline__ void fetch(int k, int ahead) {
    if (k < tiles) {
      const int there = ahead == 0 ? place : next_place();
      int r = row + ahead * kRows * a.strips;
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
      if constexpr (kLargeCopies) {
        if (k >= a.tiles_by_threads) {
          copy_rows(there, r);
          copies_commit();
          return;
        }
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
        to += C * kOfChunk;
      }
    }
    copies_commit();
  }

  // Has whole rows copied to place `there`, of which the first is r. Warps take turns, so that none falls behind.
  __device__ __forceinline__ void copy_rows(int there, int r) {
    if (thread == copier * 32) {
      const int dy_bytes = own * bytes_each<kType>(p.dy.type), s_bytes = own * bytes_each<kType>(p.s.type),
                ds_bytes = kAdd ? own * bytes_each<kType>(p.ds.type) : 0;
      const int rows = (a.m - r + a.strips - 1) >> a.log_strips;
      Barrier* const copied = places.expect(there, (rows < kRows ? rows : kRows) * (dy_bytes + s_bytes + ds_bytes));
      unsigned int to = to_tiles - in_tile() + there * kTileBytes;
      StripsRow top{dy, s, ds};
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
        if (r >= a.m) break;
        if (!a.in_order) {
          look_up(r);
          top = {dy, s, ds};
        }
        // From this thread's columns to the thread block's: it is a warp's first.
        copy_bytes_async(to, top.dy - first * bytes_each<kType>(p.dy.type), dy_bytes, copied);
        copy_bytes_async(to + kMatrix, top.s - first * bytes_each<kType>(p.s.type), s_bytes, copied);
        if constexpr (kAdd) {
          copy_bytes_async(to + 2 * kMatrix, top.ds - first * bytes_each<kType>(p.ds.type), ds_bytes, copied);
        }
        top.dy += a.dy.step;
        top.s += a.s.step;
        if constexpr (kAdd) top.ds += a.ds.step;
        r += a.strips;
        to += C * kOfChunk;
      }
    }
    __syncwarp();
    dy += kRows * a.dy.step;
    s += kRows * a.s.step;
    if constexpr (kAdd) ds += kRows * a.ds.step;
    copier = copier + 1 == a.team_warps ? 0 : copier + 1;
  }

  // Tile k is there, the one at hand.
  __device__ __forceinline__ void wait_for_tile(int k) {
    copies_wait_but_last();
    __syncwarp();
    if constexpr (kLargeCopies) {
      if (k >= a.tiles_by_threads) places.wait_for_copies(place);
    }
  }

  // This warp has read the tile at `where`.
  __device__ __forceinline__ void done_with_tile(int where) {
    __syncwarp();
    if constexpr (kLargeCopies) {
      if (a.large) places.done(where, lane);
    }
  }

  // Tile k may be copied to the next place.
  __device__ __forceinline__ void wait_for_next_place(int k) {
    if constexpr (kLargeCopies) {
      if (k >= a.tiles_by_threads && k < tiles) places.wait_until_read(next_place());
    }
  }

  __device__ __forceinline__ void look_up(int r) {
    const StripsRow of = row_by_row(p, r);
    dy = of.dy + bytes_to_copy(p.dy.type);
    s = of.s + bytes_to_copy(p.s.type);
    if constexpr (kAdd) ds = of.ds + bytes_to_copy(p.ds.type);
  }

  // `from`: bytes_to_copy into a row that goes to `to` in shared memory.
  __device__ __forceinline__ void copy_row(int to, const std::byte* from, Type type) const {
    const int size = bytes_each<kType>(type), column = column_to_copy(type);
    const int of_chunk = kByRows ? kStep * size : kOfChunk;
    if constexpr (kByRows && kSingle) to += column * size;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const std::byte* const at = from + c * kStep * size;
      if constexpr (!kWhole) {
        const int left = (own - column - c * kStep) * size;
        copy_run(to_tiles + to + c * kOfChunk, at, left, type, in_run, lanes);
        continue;
      }
      copy_piece(to + c * of_chunk, at, column + c * kStep);
      if (two_turns(type)) {
        copy_piece(to + c * of_chunk + lanes * 16, at + lanes * 16, column + c * kStep + lanes * 4);
      }
    }
  }

  // Sixteen bytes of a row, from `column` of the thread block's own on.
  __device__ __forceinline__ void copy_piece(int to, const std::byte* from, int column) const {
    if (column < own) copy_async(to_tiles + to, from);
  }

  // How far into a word row r of a matrix starts; 0 where rows are whole.
  __device__ __forceinline__ int half_of(const StripsArgs::Matrix& t, const Rows& rows, int r) const {
    if constexpr (kWhole) return 0;
    return half_word(a.in_order ? of_row(t, r) : row_at<true>(rows, r));
  }

  // Chunk c of row b of a matrix (0: dy, 1: s, 2: ds), which starts `half` bytes into a word.
  __device__ __forceinline__ Chunk<kType> chunk(const std::byte* tile, int matrix, int b, int c, Type type,
                                                int half) const {
    const bool two = two_turns(type);
    const int in_row = !kByRows ? c * kOfChunk : kSingle ? (first + c * kStep) * (two ? 4 : 2) : c * kStep * 2;
    const std::byte* const from = tile + matrix * kMatrix + b * C * kOfChunk + in_row;
    const auto at = [&](int bytes) { return *reinterpret_cast<const uint4*>(from + bytes); };
    Chunk<kType> v;
    if constexpr (!kSingle) {
      v.raw = at(0);
      return v;
    } else if constexpr (!kWhole) {
      values_of_run(type, from, half, in_run, v.v);
      return v;
    } else {
      // Of eight lanes that read together, four begin with the second half, so that they read from different banks.
      const int base = two && !kByRows ? in_run * 16 : 0, other = two && (lane & 4) != 0 ? 16 : 0;
      const uint4 one = at(base + other), rest = two ? at(base + 16 - other) : one;
      const bool turned = other != 0;
      const uint4 low = select(turned, rest, one), high = select(turned, one, rest);
      values_of_halves(type, low, high, v.v);
      return v;
    }
  }

  // Stores chunk c of row b of the tile at `tile`, whose row `to` is column_bytes into, if row and chunk are there.
  // Where lanes store together all of the warp call; where rows start anywhere, dy's chunk is not needed any more.
  __device__ __forceinline__ void store(Type type, std::byte* to, bool there, const std::byte* tile, int b, int c,
                                        const float (&v)[kChunk]) const {
    to += c * kStep * bytes_each<kType>(type);
    const int left = there ? own - (first - (kWhole ? 0 : in_run * kChunk)) - c * kStep : kNothing;
    if constexpr (kWhole) {
      if constexpr (kPairs) {
        store_beside<kType>(type, to, left, lane, v);
      } else {
        store_whole<kType>(type, to, v);
      }
    } else {
      store_run(type, to, left, const_cast<std::byte*>(tile) + (b * C + c) * kOfChunk, in_run, lanes, v);
    }
  }

  // Where a warp that has no tile under way may put 32 * kChunk floats of chunk c, its lanes' halves one after the
  // other: warp `of`, lane 0, half h. Lanes lie side by side there.
  static constexpr int kWarpBytes = kWhole ? (kSingle ? 1024 : 512) : 32 * 32 + 16;
  __device__ __forceinline__ static int free_place(int of, int where, int c, int h) {
    return of * kWarpBytes + where * kTileBytes + c * kOfChunk + h * (kWhole ? kMatrix : 32 * 16);
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
  const int lanes, in_run;       // a run of lanes that have neighbouring chunks, and this lane's place there
  TilePlaces<kStages> places;    // for large copies
  std::byte* const tiles_at;     // the first tile, in_tile
  const unsigned int to_tiles;   // the same as a shared address
  float* const statistics;       // this warp's: of each stage 16 values of rstd, 16 of mean
  int slot;                      // this thread's strip, of the thread block's
  int member = 0;                // this warp, of its team's
  int first, begin = 0, own;     // columns: this thread's first, the thread block's first and number
  int tiles, row;                // of this thread's strip: its tiles, the first row of the one at hand
  int place = 0;                 // of the tile at hand
  int copier = 0;                // the warp that has the next tile copied
  const std::byte *dy, *s, *ds;  // this thread's columns of rows to come
  std::byte* dx;
};

}  // namespace truenorm::cuda
