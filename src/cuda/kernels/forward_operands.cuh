// What the forward is given, and its operands' chunks: in shared memory, or in registers.
#pragma once

#include "cuda/device/anywhere.cuh"
#include "cuda/device/pieces.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/rows.hpp"
#include "cuda/tuning/forward.hpp"

namespace truenorm::cuda {

// What a launch is given.
struct ForwardArgs {
  unsigned int m;
  int n, log_lanes, warps, rows, turns;  // as ForwardPlan has them
  float eps, offset;                     // offset: as effective_offset gives it
  bool cached;
  bool round_xhat;
  bool plain;  // the usual operands: of one type, a weight, and a bias in LayerNorm only
  bool early;  // the call may begin before the one before it has finished
  Type xhat_type, s_type;
  RowsAt x;
  Vec weight, bias;
  RowsAt y;
  float *mean, *rstd;
  RowsAt residual, s;
};

// What a kernel is compiled for, beside its operands' types.
enum class ForwardForm {
  kGeneral,      // rows and vectors in shared memory
  kDirect,       // vectors are read where they are, when they are needed, which leaves shared memory to rows
  kNarrow,       // the same of rows no longer than a block: a lane has a chunk, or one of each half. Whole rows are in
                 // registers from the start, and vectors are read where they are; others as in kGeneral
  kNarrowPlain,  // for ForwardArgs::plain, with fewer instructions, and with vectors in registers too
};
constexpr bool is_narrow(ForwardForm form) { return form >= ForwardForm::kNarrow; }

// How rows lie in memory, and in shared memory.
enum class Lie {
  kWhole,   // in whole chunks at multiples of sixteen bytes
  kPieces,  // anywhere, of a 16-bit type: by pieces (device/pieces.cuh)
  kWords,   // anywhere, of any type: by words (device/anywhere.cuh)
};
template <Type kType, bool kWhole>
constexpr Lie lie_of() {
  return kWhole ? Lie::kWhole : kType == Type::f32 ? Lie::kWords : Lie::kPieces;
}

// Where a thread stands, and where its chunks are in shared memory: run after run, and in a run chunk after chunk, at
// distances known beforehand. A thread's FP32, and what is copied by words, take 32 bytes a chunk, others 16; by words
// a run has a word more, by pieces all runs of a thread kSparePieces more.
template <int C, Lie kLie, bool kNarrow>
struct ForwardPlace {
  static constexpr int kStep = 32 * kChunk;         // columns from a thread's chunk to its next; unless
  static constexpr bool kPart = C == 1 || kNarrow;  // a row may have part of a warp
  int thread, lane, lanes, in_run, row, warp, first, run, runs;

  __device__ __forceinline__ explicit ForwardPlace(const ForwardArgs& p)
      : thread(kPart ? static_cast<int>(threadIdx.x) : thread_index()),
        lane(thread & 31),
        lanes(kPart ? 1 << p.log_lanes : 32),
        in_run(lane & (lanes - 1)) {
    const int log_lanes = kPart ? p.log_lanes : 5;
    row = one_warp(p) ? thread >> log_lanes : 0;
    warp = one_warp(p) ? 0 : thread >> 5;
    first = (warp * C * 32 + in_run) * kChunk;
    run = thread >> log_lanes;
    runs = static_cast<int>(blockDim.x) >> log_lanes;
  }
  __device__ __forceinline__ static bool one_warp(const ForwardArgs& p) { return kPart || p.warps == 1; }
  // Columns from a thread's first chunk to chunk c.
  __device__ __forceinline__ int step(int c) const { return c * (kNarrow ? lanes * kChunk : kStep); }
  // The first column of chunk c.
  __device__ __forceinline__ int column(int c) const { return first + step(c); }
  // The first of four columns of FP32: lanes of a run have the first half of their chunks side by side, then the
  // second.
  __device__ __forceinline__ int half_column(int c, int h) const {
    return column(c) - in_run * (kChunk / 2) + h * lanes * (kChunk / 2);
  }
  // Stores values to `column` of a row that has `columns`: whole chunks. All lanes of the warp call.
  template <Type kType>
  __device__ __forceinline__ void store(Type type, std::byte* row, int column, int columns,
                                        const float (&v)[kChunk]) const {
    std::byte* const to = row + column * bytes_each<kType>(type);
    if (kPart && lanes == 1) {
      if (column < columns) store_whole<kType>(type, to, v);
    } else {
      store_beside<kType>(type, to, columns - column, lane, v);
    }
  }
  // From a chunk of a run to the next, of the thread block's chunks all together, and to this run's.
  __device__ __forceinline__ int chunk_bytes(int each) const {
    return kLie == Lie::kWords ? run_bytes(lanes) : lanes * each;
  }
  // `spare`: what each run has behind its chunks.
  __device__ __forceinline__ int bytes(int each, int spare) const {
    return each == 0 ? 0 : runs * (C * chunk_bytes(each) + spare);
  }
  __device__ __forceinline__ int run_at(int each, int spare) const { return run * (C * chunk_bytes(each) + spare); }
};

// Places in shared memory are kept as numbers: of a pointer that might be null the compiler would forget what it is to.
__device__ __forceinline__ std::byte* forward_shared() {
  extern __shared__ float4 forward_memory[];
  return reinterpret_cast<std::byte*>(forward_memory);
}

// C chunks of a matrix's row or of a vector, in shared memory.
template <Type kType, int C, Lie kLie, bool kVector, bool kNarrow>
struct Side {
  using Place = ForwardPlace<C, kLie, kNarrow>;
  static constexpr bool kAnyType = kVector || kType == Type::f32;  // else kType
  const Place& at;
  int place;     // of this run, in shared memory
  int half = 0;  // of rows that are copied by words: how far into one

  // Of rows that start anywhere: where the row lies whose columns have been copied.
  __device__ __forceinline__ void found_at(const std::byte* row) {
    if constexpr (kLie == Lie::kWords) half = half_word(row);
  }

  // Bytes of a chunk.
  __device__ __forceinline__ static int each(Type type) {
    return kVector ? (type == Type::f32 ? 32 : 16) : kType == Type::f32 ? 32 : 16;
  }

  // Asks for columns of a row, or of a vector, that has `columns`: none where that is 0.
  template <bool kCached>
  __device__ __forceinline__ void copy(Type type, const std::byte* row, int columns) {
    const unsigned int run = shared_address(forward_shared() + place);
    const int chunk = at.chunk_bytes(each(type));
    if constexpr (kLie == Lie::kWords) {
      half = half_word(row);
      const int size = type == Type::f32 ? 4 : 2, column = at.first - at.in_run * kChunk;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        copy_run(run + c * chunk, row + std::int64_t{column + at.step(c)} * size,
                 (columns - column - at.step(c)) * size, type, at.in_run, at.lanes);
      }
    } else if (kAnyType && type == Type::f32) {
      // Neighbouring lanes copy neighbouring sixteen bytes, in two turns.
      const int column = at.first - at.in_run * (kChunk / 2), left = columns - column, turn = at.lanes * 16;
      const std::byte* const from = row + std::int64_t{column} * 4;
      const unsigned int to = run + at.in_run * 16;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        copy16<kCached>(left - at.step(c), 4, to + c * chunk, from + at.step(c) * 4);
        copy16<kCached>(left - at.step(c) - at.lanes * 4, 4, to + c * chunk + turn, from + at.step(c) * 4 + turn);
      }
    } else {
      const int left = columns - at.first;
      const std::byte* const from = row + std::int64_t{at.first} * 2;
      const unsigned int to = run + at.in_run * each(type);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        copy16<kCached>(left - at.step(c), 2, to + c * chunk, from + at.step(c) * 2);
      }
    }
  }
  // Sixteen bytes, or of the row's last chunk what there is: `left` elements of `size` bytes.
  template <bool kCached>
  __device__ __forceinline__ static void copy16(int left, int size, unsigned int to, const std::byte* from) {
    if constexpr (kLie == Lie::kWhole) {
      copy_async_if<kCached>(left > 0, to, from);
    } else {
      copy_part_async<kCached>(to, from, part_of_piece(left * size));
    }
  }

  __device__ __forceinline__ std::byte* run_of(int c, Type type) const {
    return forward_shared() + place + c * at.chunk_bytes(each(type));
  }

  // Four of FP32, at half_column.
  __device__ __forceinline__ void half_values(int c, int h, float (&v)[4]) const {
    const float4 of = reinterpret_cast<const float4*>(run_of(c, Type::f32))[h * at.lanes + at.in_run];
    v[0] = of.x, v[1] = of.y, v[2] = of.z, v[3] = of.w;
  }

  // What a thread made of its own chunk, in the chunk's place: packed, or as FP32.
  __device__ __forceinline__ void keep(int c, const float (&v)[kChunk]) {
    constexpr int kBytes = kType == Type::f32 ? 32 : 16;
    store_whole<kType>(kType, run_of(c, kType) + at.in_run * kBytes, v);
  }

  __device__ __forceinline__ void values(int c, Type type, float (&v)[kChunk]) const {
    if constexpr (kLie == Lie::kWords) {
      values_of_run(type, run_of(c, type), half, at.in_run, v);
    } else {
      const auto* const own = reinterpret_cast<const uint4*>(run_of(c, type) + at.in_run * each(type));
      if (kAnyType && type == Type::f32) {
        // Of eight lanes that read together, four begin with the second half, so that they read from different banks.
        const bool turned = (at.lane & 4) != 0;
        const uint4 one = own[turned ? 1 : 0], rest = own[turned ? 0 : 1];
        values_of_halves(type, select(turned, rest, one), select(turned, one, rest), v);
      } else {
        widen8(kAnyType ? type : kType, own[0], v);
      }
    }
  }
};

// The same of rows that start anywhere, by pieces, and in registers from where the sums begin.
template <Type kType, int C, bool kNarrow>
struct Side<kType, C, Lie::kPieces, false, kNarrow> {
  using Place = ForwardPlace<C, Lie::kPieces, kNarrow>;
  const Place& at;
  int place;
  uint4 low[C] = {};

  __device__ __forceinline__ static int each(Type) { return kPiece; }
  // A run's first piece lies as far into a line as in memory: copies are made line by line on both sides.
  __device__ __forceinline__ static int into_line(const std::byte* row) {
    return static_cast<int>(reinterpret_cast<unsigned long long>(row) & (kLine - kPiece));
  }

  template <bool kCached>
  __device__ __forceinline__ void copy(Type, const std::byte* row, int columns) {
    const int into = into_piece(row), column = at.first - at.in_run * kChunk;
    const std::byte* const from = row - into + std::int64_t{column} * 2 + at.in_run * kPiece;
    const unsigned int to = shared_address(forward_shared() + place) + into_line(row) + at.in_run * kPiece;
    // Of the piece in which the row starts all is read, which is all in that piece's allocation: those start at more.
    const int left = columns == 0 ? 0 : (columns - at.first) * 2 + into;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int step = at.step(c) * 2;
      copy_part_async<kCached>(to + c * at.lanes * kPiece, from + step, part_of_piece(left - step));
    }
    if (at.in_run == at.lanes - 1) {  // what the last lane's last chunk has of the next piece
      const int step = at.step(C - 1) * 2 + kPiece;
      copy_part_async<kCached>(to + ((C - 1) * at.lanes + 1) * kPiece, from + step, part_of_piece(left - step));
    }
  }
  __device__ __forceinline__ void found_at(const std::byte* row) {
    const int into = into_piece(row);
    const auto* const pieces = reinterpret_cast<const uint4*>(forward_shared() + place + into_line(row)) + at.in_run;
#pragma unroll
    for (int c = 0; c < C; ++c) low[c] = from_pieces(pieces[c * at.lanes], pieces[c * at.lanes + 1], into);
  }
  __device__ __forceinline__ void keep(int c, const float (&v)[kChunk]) { low[c] = narrow8(kType, v); }
  __device__ __forceinline__ void values(int c, Type, float (&v)[kChunk]) const { widen8(kType, low[c], v); }
};

// The same of whole chunks, in registers all the time.
template <Type kType, int C, bool kVector>
struct Side<kType, C, Lie::kWhole, kVector, true> {
  using Place = ForwardPlace<C, Lie::kWhole, true>;
  const Place& at;
  int place = 0;
  uint4 low[C] = {}, high[kVector ? C : 1] = {};  // high: of a vector of FP32

  __device__ __forceinline__ static int each(Type) { return 0; }

  // The row's type is kType, or a vector's any.
  template <bool kCached>
  __device__ __forceinline__ void copy(Type type, const std::byte* row, int columns) {
    const bool two = kVector && type == Type::f32;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (at.column(c) >= columns) continue;
      const auto* const from = reinterpret_cast<const uint4*>(row + at.column(c) * (two ? 4 : 2));
      low[c] = from[0];
      if constexpr (kVector) {
        if (two) high[c] = from[1];
      }
    }
  }
  __device__ __forceinline__ void keep(int c, const float (&v)[kChunk]) { low[c] = narrow8(kType, v); }
  __device__ __forceinline__ void values(int c, Type type, float (&v)[kChunk]) const {
    values_of_halves(kVector ? type : kType, low[c], high[kVector ? c : 0], v);
  }
};

// A vector where it is, aligned to sixteen bytes and of whole chunks. Not __ldg: dependent.cuh says why.
template <int C, bool kNarrow>
struct DirectVector {
  const ForwardPlace<C, Lie::kWhole, kNarrow>& at;
  const std::byte* data;
  int n;

  __device__ __forceinline__ void values(int c, Type type, float (&v)[kChunk]) const {
    const int column = at.column(c);
    uint4 low = {}, high = {};
    if (column < n) {
      const auto* const from = reinterpret_cast<const uint4*>(data + column * (type == Type::f32 ? 4 : 2));
      low = __ldca(from);
      if (type == Type::f32) high = __ldca(from + 1);
    }
    values_of_halves(type, low, high, v);
  }
  __device__ __forceinline__ void half_values(int c, int h, float (&v)[4]) const {
    const int column = at.half_column(c, h);
    float4 of = {};
    if (column < n) of = __ldca(reinterpret_cast<const float4*>(data) + column / 4);
    v[0] = of.x, v[1] = of.y, v[2] = of.z, v[3] = of.w;
  }
};

}  // namespace truenorm::cuda
