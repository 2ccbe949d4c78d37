// What the forward is given, and its operands' chunks: in shared memory, or in registers.
#pragma once

#include "cuda/device/anywhere.cuh"
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

// Where a thread stands, and where its chunks are in shared memory: run after run, and in a run chunk after chunk, at
// distances known beforehand. A thread's FP32 and rows that start anywhere take 32 bytes a chunk, others 16; a run of
// the latter has a word more.
template <int C, bool kWhole>
struct ForwardPlace {
  static constexpr int kStep = 32 * kChunk;  // columns from a thread's chunk to its next
  int thread, lane, lanes, in_run, row, warp, first, run, runs;

  __device__ __forceinline__ explicit ForwardPlace(const ForwardArgs& p)
      : thread(C == 1 ? static_cast<int>(threadIdx.x) : thread_index()),
        lane(thread & 31),
        lanes(C > 1 ? 32 : 1 << p.log_lanes),
        in_run(lane & (lanes - 1)) {
    const int log_lanes = C > 1 ? 5 : p.log_lanes;
    row = one_warp(p) ? thread >> log_lanes : 0;
    warp = one_warp(p) ? 0 : thread >> 5;
    first = (warp * C * 32 + in_run) * kChunk;
    run = thread >> log_lanes;
    runs = static_cast<int>(blockDim.x) >> log_lanes;
  }
  // Rows of one chunk a thread are no longer than a warp.
  __device__ __forceinline__ static bool one_warp(const ForwardArgs& p) { return C == 1 || p.warps == 1; }
  // From a chunk of a run to the next, of the thread block's chunks all together, and to this run's.
  __device__ __forceinline__ int chunk_bytes(int each) const { return kWhole ? lanes * each : run_bytes(lanes); }
  __device__ __forceinline__ int bytes(int each) const { return each == 0 ? 0 : runs * C * chunk_bytes(each); }
  __device__ __forceinline__ int run_at(int each) const { return run * C * chunk_bytes(each); }
};

// Places in shared memory are kept as numbers: of a pointer that might be null the compiler would forget what it is to.
__device__ __forceinline__ std::byte* forward_shared() {
  extern __shared__ float4 forward_memory[];
  return reinterpret_cast<std::byte*>(forward_memory);
}

// C chunks of a matrix's row or of a vector, in shared memory.
template <Type kType, int C, bool kWhole, bool kVector,
          bool kRegisters = forward_in_registers(C, kType == Type::f32, kWhole)>
struct Side {
  using Place = ForwardPlace<C, kWhole>;
  static constexpr int kStep = Place::kStep;
  static constexpr bool kAnyType = kVector || kType == Type::f32;  // else kType
  const Place& at;
  int place;     // of this run, in shared memory
  int half = 0;  // of rows that start anywhere: how far into a word

  // Bytes of a chunk.
  __device__ __forceinline__ static int each(Type type) {
    return kVector ? (type == Type::f32 ? 32 : 16) : kType == Type::f32 ? 32 : 16;
  }

  // Asks for columns of a row, or of a vector, that has `columns`: none where that is 0.
  template <bool kCached>
  __device__ __forceinline__ void copy(Type type, const std::byte* row, int columns) {
    const unsigned int run = shared_address(forward_shared() + place);
    const int chunk = at.chunk_bytes(each(type));
    if constexpr (!kWhole) {
      half = half_word(row);
      const int size = type == Type::f32 ? 4 : 2, column = at.first - at.in_run * kChunk;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        copy_run(run + c * chunk, row + std::int64_t{column + c * kStep} * size, (columns - column - c * kStep) * size,
                 type, at.in_run, at.lanes);
      }
    } else if (kAnyType && type == Type::f32) {
      // Neighbouring lanes copy neighbouring sixteen bytes, in two turns.
      const int column = at.first - at.in_run * (kChunk / 2), left = columns - column, turn = at.lanes * 16;
      const std::byte* const from = row + std::int64_t{column} * 4;
      const unsigned int to = run + at.in_run * 16;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        copy_async_if<kCached>(c * kStep < left, to + c * chunk, from + c * kStep * 4);
        copy_async_if<kCached>(c * kStep + at.lanes * 4 < left, to + c * chunk + turn, from + c * kStep * 4 + turn);
      }
    } else {
      const int left = columns - at.first;
      const std::byte* const from = row + std::int64_t{at.first} * 2;
      const unsigned int to = run + at.in_run * each(type);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        copy_async_if<kCached>(c * kStep < left, to + c * chunk, from + c * kStep * 2);
      }
    }
  }

  __device__ __forceinline__ std::byte* run_of(int c, Type type) const {
    return forward_shared() + place + c * at.chunk_bytes(each(type));
  }

  // What a thread made of its own chunk, in the chunk's place: packed, or as FP32.
  __device__ __forceinline__ void keep(int c, const float (&v)[kChunk]) {
    constexpr int kBytes = kType == Type::f32 ? 32 : 16;
    store_whole<kType>(kType, run_of(c, kType) + at.in_run * kBytes, v);
  }

  __device__ __forceinline__ void values(int c, Type type, float (&v)[kChunk]) const {
    if constexpr (!kWhole) {
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

// The same in registers.
template <Type kType, int C, bool kWhole, bool kVector>
struct Side<kType, C, kWhole, kVector, true> {
  using Place = ForwardPlace<C, kWhole>;
  const Place& at;
  int place = 0;
  int half = 0;
  uint4 low = {}, high = {};  // high: of a vector of FP32

  __device__ __forceinline__ static int each(Type) { return 0; }

  // The row's type is kType, or a vector's any.
  template <bool kCached>
  __device__ __forceinline__ void copy(Type type, const std::byte* row, int columns) {
    if (at.first >= columns) return;
    const bool two = kVector && type == Type::f32;
    const auto* const from = reinterpret_cast<const uint4*>(row + at.first * (two ? 4 : 2));
    low = from[0];
    if (two) high = from[1];
  }
  __device__ __forceinline__ void keep(int, const float (&v)[kChunk]) { low = narrow8(kType, v); }
  __device__ __forceinline__ void values(int, Type type, float (&v)[kChunk]) const {
    values_of_halves(kVector ? type : kType, low, high, v);
  }
};

}  // namespace truenorm::cuda
