// The backward of few rows, or of rows too wide for backward_strips.cuh: thread blocks for rows, which make dx, beside
// thread blocks for columns, which make dweight and dbias (backward_columns.cuh). Neither waits for the other.
#pragma once

#include <type_traits>

#include "cuda/device/async.cuh"
#include "cuda/device/rows.hpp"
#include "cuda/kernels/gradients.cuh"
#include "cuda/tuning/split.hpp"

namespace truenorm::cuda {

// What a launch is given: first what is asked for first, close together, for constants come from memory too.
struct SplitArgs {
  unsigned int row_blocks;  // thread blocks for rows
  unsigned int slabs;       // for columns: those of dweight, then those of dbias
  unsigned int slabs_of_weight;
  int n;
  std::int64_t m;
  RowsAt dy, s;
  const float *rstd, *mean;
  int log_lanes, warps, rows_each;  // of rows: as RowShape has them
  int log_chunks;                   // of a slab's width in chunks
  int strips, used;                 // used: those that have rows of dy
  Vec weight;
  float offset;       // as effective_offset gives it
  bool plain_weight;  // one of the kernel's type, to which nothing is added
  bool early;         // the call may begin before the one before it has finished
  bool round_xhat;
  bool one_gradient;  // dx, of the kernel's type, and neither ds nor dresidual
  RowsAt dx, ds, dresidual;
  Vec dweight, dbias;
  Type xhat_type;
  int cached;             // tiles of dy and s that a long row keeps
  unsigned int* counter;  // where dx is written over what the columns read, they go first; zero before, after
  spec::BackwardCall call;
};

// Row r of a matrix; where rows start anywhere there may be 2^31 of them or more.
template <bool kWhole>
__device__ __forceinline__ std::byte* split_row(const RowsAt& t, const Rows& rows, std::int64_t r) {
  if constexpr (kWhole) return t.at(static_cast<std::uint32_t>(r));
  return spec::row_of(rows, r);
}

// A chunk of the weight.
template <Type kType, bool kWhole>
struct SplitWeight {
  PackedVec<kWhole> packed;

  __device__ __forceinline__ void load(const SplitArgs& a, bool plain, int n, int column) {
    if (!kWhole || __builtin_expect(!plain, false)) return packed.load(a.weight, n, column);
    if (column >= n) return;
    const auto* const p =
        reinterpret_cast<const uint4*>(a.weight.data + std::int64_t{column} * bytes_each<kType>(kType));
    packed.low = __ldca(p);
    if constexpr (kType == Type::f32) packed.high = __ldca(p + 1);
  }
  __device__ __forceinline__ void values(const SplitArgs& a, bool plain, float (&w)[kChunk]) const {
    if (__builtin_expect(plain, true)) return values_of_halves(kType, packed.low, packed.high, w);
    packed.weights(a.weight, a.offset, w);
  }
};

// A thread's chunks of a matrix's row. Where there are several they stay in shared memory, so that a thread needs few
// registers, and two thread blocks fit on a multiprocessor.
template <Type kType, int C, bool kWhole>
struct SplitChunks {
  static constexpr bool kShared = split_shares_rows(C, kWhole);
  static constexpr int kBytes = kType == Type::f32 ? 32 : 16;  // a chunk
  Chunk<kType> kept[kShared ? 1 : C];
  std::byte* mine;  // in shared memory, blockDim.x * kBytes from a chunk to the next

  // All chunks are asked for; if in shared memory, they are there after a wait for copies, and for the warp.
  __device__ __forceinline__ void load(Type type, const std::byte* row, int n, int first, int step) {
    if constexpr (!kShared) return load_chunks<kType, kWhole>(type, row, n, first, step, kept);
    const unsigned int to = shared_address(mine);
    if (kType == Type::f32 && type == Type::f32) {
      // A chunk is two copies: neighbouring lanes ask for neighbouring ones, and each other's.
      const int lane = threadIdx.x & 31, column = first - lane * (kChunk / 2);
#pragma unroll
      for (int i = 0; i < 2 * C; ++i) {
        const int at = column + i / 2 * step + i % 2 * 128;
        copy_async_if<false>(at < n, to - lane * 16 + i / 2 * blockDim.x * kBytes + i % 2 * 512,
                             row + std::int64_t{at} * 4);
      }
      return;
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int at = first + c * step;
      copy_async_if<false>(at < n, to + c * blockDim.x * kBytes, row + std::int64_t{at} * 2);
    }
  }
  // Chunk c, if it is there.
  __device__ __forceinline__ Chunk<kType> get(int c, Type type, bool there) const {
    if constexpr (!kShared) return kept[c];
    return there ? load_whole<kType>(type, mine + c * blockDim.x * kBytes) : Chunk<kType>{};
  }
};

// Where chunks are whole, FP32 is stored by lanes together: all of a warp call, also those that have no row, n being 0.
// `alone`: each lane stores its own, because a row has no other, or because that is no slower.
template <Type kType, bool kWhole>
__device__ __forceinline__ void store_to_row(Type type, std::byte* row, int n, int column, bool alone,
                                             const float (&v)[kChunk]) {
  if (kWhole && kType == Type::f32 && !alone) {
    store_beside<kType>(type, row + std::int64_t{column} * bytes_each<kType>(type), n - column, threadIdx.x & 31, v);
  } else {
    store_chunk<kType, kWhole>(type, row, n, column, v);
  }
}
template <Type kType, bool kWhole>
__device__ __forceinline__ void store_gradient(const SplitArgs& a, std::int64_t r, int n, int column, bool alone,
                                               const float (&dx)[kChunk]) {
  const auto to = [&](const RowsAt& t, const Rows& rows) {
    if (t.present) store_to_row<kType, kWhole>(t.type, split_row<kWhole>(t, rows, r), n, column, alone, dx);
  };
  to(a.dx, a.call.dx);
  to(a.dresidual, a.call.dresidual);
}

// Without dy the gradient is ds itself; of this thread's chunks, `step` columns apart. Out of line: few ask for it.
__device__ __noinline__ inline void pass_through(const SplitArgs& a, std::int64_t r, int first, int step, int chunks) {
  for (int column = first; column < a.n && chunks > 0; column += step, --chunks) {
    Chunk<Type::f32> c[1];
    load_chunks<Type::f32, false>(a.ds.type, spec::row_of(a.call.ds, r), a.n, column, 0, c);
    store_gradient<Type::f32, false>(a, r, a.n, column, true, c[0].v);
  }
}

// One row for each group of threads. `block`: which of the thread blocks for rows this is.
template <Type kType, int C, bool kLayer, bool kWhole>
__device__ __forceinline__ void backward_rows(const SplitArgs& a, std::int64_t block, float* shared) {
  using Row = std::conditional_t<kWhole, int, std::int64_t>;
  const RowPlace<C> at(a.log_lanes, a.warps);
  const Row r = static_cast<Row>(block) * a.rows_each + at.row;
  const bool active = at.row < a.rows_each && at.warp < a.warps && r < static_cast<Row>(a.m);
  const int n = active ? a.n : 0;
  const Row row = active ? r : 0;
  if (__builtin_expect(!a.dy.present, false)) {
    if (active) pass_through(a, r, at.first, at.kStep, C);
    return;
  }
  // Asked for now, when there is time.
  const bool plain = in_register(a.plain_weight), one_gradient = in_register(a.one_gradient);
  using Chunks = SplitChunks<kType, C, kWhole>;
  Chunks dy, s;
  if constexpr (Chunks::kShared) {
    dy.mine = reinterpret_cast<std::byte*>(shared + kSplitSums) + at.thread * Chunks::kBytes;
    s.mine = dy.mine + C * blockDim.x * Chunks::kBytes;
  }
  dy.load(a.dy.type, split_row<kWhole>(a.dy, a.call.dy, row), n, at.first, at.kStep);
  s.load(a.s.type, split_row<kWhole>(a.s, a.call.s, row), n, at.first, at.kStep);
  if constexpr (Chunks::kShared) copies_commit();
  std::byte* const to_dx = kWhole || a.dx.present ? split_row<kWhole>(a.dx, a.call.dx, row) : nullptr;
  RowSlopes of{};
  of.rstd = a.rstd[row];
  if constexpr (kLayer) of.mean = a.mean[row];
  // Under way before it is needed; where a thread has many chunks there are no registers for it, and it is read twice.
  constexpr bool kEarly = C == 1;
  SplitWeight<kType, kWhole> weight;
  if constexpr (kEarly) weight.load(a, plain, n, at.first);
  const auto weights = [&](int c, float(&w)[kChunk]) {
    if constexpr (!kEarly) weight.load(a, plain, n, at.first + c * at.kStep);
    weight.values(a, plain, w);
  };
  constexpr int kSums = kLayer ? 2 : 1;
  float sums[kSums][padded(C)] = {}, total[kSums];
  if constexpr (Chunks::kShared) {
    copies_wait_but<0>(0);
    __syncwarp();
  }
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int there = n - at.first - c * at.kStep;
    float w[kChunk];
    weights(c, w);
    sum_terms<kType, kLayer, kWhole>(dy.get(c, a.dy.type, there > 0), s.get(c, a.s.type, there > 0), w, of.mean, there,
                                     sums[0][c], sums[kSums - 1][c]);
  }
  row_sums<kSums, C>(at, sums, shared, total);
  constexpr bool kTogether = kWhole && kType == Type::f32;
  if (!kTogether && !active) return;
  const bool alone = at.lanes == 1;
  finish_slopes<kLayer>(total[0], total[kSums - 1], static_cast<float>(a.n), of);
  const auto emit = [&](auto one) {
    constexpr bool kOne = decltype(one)::value;
    const std::byte* const ds = !kOne && a.ds.present ? split_row<kWhole>(a.ds, a.call.ds, r) : nullptr;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = at.first + c * at.kStep;
      const Chunk<kType> dy_c = dy.get(c, a.dy.type, column < n), s_c = s.get(c, a.s.type, column < n);
      float w[kChunk], dx[kChunk];
      weights(c, w);
      if (ds == nullptr) {
        gradient_values<kType, kLayer>(dy_c, s_c, w, of, dx);
      } else {
        Chunk<kType> beside[1];
        float d[kChunk];
        load_chunks<kType, kWhole>(a.ds.type, ds, n, column, 0, beside);
        beside[0].values(d);
        gradient_values<kType, kLayer>(
            dy_c, s_c, w, of, [&](int i) { return d[i]; }, dx);
      }
      if constexpr (kOne) {
        store_to_row<kType, kWhole>(kType, to_dx, n, column, alone, dx);
      } else {
        store_gradient<kType, kWhole>(a, r, n, column, alone, dx);
      }
    }
  };
  if (__builtin_expect(one_gradient, true)) {
    emit(std::true_type{});
  } else {
    emit(std::false_type{});
  }
}

}  // namespace truenorm::cuda
