// The backward in which rows and columns go apart (kernels/backward_split.cuh).
#pragma once

#include "cuda/tuning/rows.hpp"

namespace truenorm::cuda {

inline constexpr int kSplitThreads = 512;

// Thread blocks that a multiprocessor has registers for: with two, rows and columns of a small call all start at once.
constexpr int split_blocks_at_once(int chunks, bool single, bool whole) {
  return whole && (!single || chunks <= 2) ? 2 : 1;
}

// Whether a row's chunks stay in shared memory, behind kSplitSums floats for its sums.
constexpr bool split_shares_rows(int chunks, bool whole) { return whole && chunks > 1; }
inline constexpr int kSplitSums = 2 * 5 * kSplitThreads / 32;

// What a slab of columns needs of shared memory: a row for each warp, and the levels of the tree over groups of strips.
inline constexpr int kGroupLevels = 16;
constexpr std::size_t columns_shared_bytes(int threads, int chunks) {
  return sizeof(float) * static_cast<unsigned>((threads / 32 + kGroupLevels) * chunks * 8);
}

struct SplitPlan {
  RowPlan rows;
  int threads = 0;
  std::int64_t row_blocks = 0;  // 0: no gradient of a matrix is asked for
  std::int64_t slabs_each = 0;  // of the columns of one vector's gradient
  std::int64_t slabs = 0;       // of all of them
  int chunks = 8;               // a slab's width, in chunks of eight columns
  std::int64_t cached = 0;      // of rows that go tile by tile: tiles of dy and s that stay in shared memory
  bool single = false;          // matrices are kept as FP32
  bool whole = true;            // rows start at multiples of sixteen bytes and have whole chunks

  friend constexpr bool operator==(const SplitPlan&, const SplitPlan&) = default;
};

// What is asked of a call: gradients of matrices, of how many vectors; and how matrices are kept.
struct SplitOperands {
  bool rows;
  int vectors;
  bool single, whole;
};

// What rows, and their sums, take of shared memory.
constexpr std::size_t split_rows_bytes(const SplitPlan& plan) {
  if (plan.row_blocks == 0) return 0;
  if (plan.rows.wide) return wide_shared_bytes(2, plan.cached, 2, plan.single);
  if (!split_shares_rows(plan.rows.chunks, plan.whole)) return row_shared_bytes(plan.rows, 2);
  const auto chunks = static_cast<unsigned>(plan.threads * plan.rows.chunks);
  return sizeof(float) * kSplitSums + 2 * std::size_t{chunks} * (plan.single ? 32 : 16);
}

constexpr SplitPlan plan_split(std::int64_t m, std::int64_t n, const SplitOperands& of, const Device& device) {
  SplitPlan plan;
  const bool rows = of.rows;
  const int vectors = of.vectors;
  plan.single = of.single;
  plan.whole = of.whole;
  plan.rows = plan_rows(m, n, 5, kSplitThreads, device);
  plan.row_blocks = rows ? 1 : 0;  // any
  plan.threads = kSplitThreads;    // at most
  if (!plan.rows.wide && split_rows_bytes(plan) > device.shared_bytes) plan.rows.wide = true;
  if (!plan.rows.wide) plan.threads = plan.rows.threads;
  if (vectors > 0) {
    // Columns want a power of two of warps, and many: a pair of strips for each lane beside the slab's.
    int threads = 128;
    while (threads < plan.threads || (threads < kSplitThreads && m > 32)) threads *= 2;
    plan.threads = threads;
    plan.chunks = n > 16384 ? 32 : n > spec::kWide ? 16 : 8;
    const auto slabs = [&] { return (n + plan.chunks * 8 - 1) / (plan.chunks * 8); };
    // Half as wide, the loop has one turn still: where that makes no more turns of thread blocks than there are anyway.
    if (m > 128 && (n <= spec::kMiddle || (n <= 16384 && m + vectors * slabs() > 2 * device.multiprocessors))) {
      plan.chunks /= 2;
    }
    while (plan.chunks * 8 > threads) plan.chunks /= 2;
    plan.slabs_each = slabs();
    plan.slabs = vectors * plan.slabs_each;
    if (!plan.rows.wide) {  // as many rows as the threads have room for, where there are many
      const int group = plan.rows.shape.warps << plan.rows.shape.log_lanes;
      if (plan.rows.shape.warps == 1 && m > device.multiprocessors) plan.rows.shape.rows_per_cta = threads / group;
      plan.rows.threads = threads;
    }
  }
  if (rows)
    plan.row_blocks = plan.rows.wide ? m : (m + plan.rows.shape.rows_per_cta - 1) / plan.rows.shape.rows_per_cta;
  return plan;
}

// Tiles of a long row's dy and s that stay in shared memory between its two passes. Two thread blocks a multiprocessor
// are worth more than all of a row: what is read again comes from L2 then, and columns have few loads under way. Where
// a row alone is far too long for that, it has all that there is.
constexpr std::int64_t split_cached_tiles(std::int64_t n, bool single, bool columns, const Device& device) {
  constexpr std::size_t kReserved = 1 << 10;  // of each thread block, by the system
  const auto within = [&](std::size_t bytes) { return wide_cached_tiles(n, bytes, 2, single, kBackwardTiles); };
  const std::int64_t half = within((device.shared_bytes + kReserved) / 2 - kReserved);
  return !single && (columns || 2 * half * kTile >= n) ? half : within(device.shared_bytes);
}

constexpr std::size_t split_shared_bytes(const SplitPlan& plan) {
  return std::max(plan.slabs == 0 ? 0 : columns_shared_bytes(plan.threads, plan.chunks), split_rows_bytes(plan));
}

}  // namespace truenorm::cuda
