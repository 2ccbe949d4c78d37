// The backward in which rows and columns go apart (kernels/backward_split.cuh).
#pragma once

#include "cuda/tuning/rows.hpp"

namespace truenorm::cuda {

inline constexpr int kSplitThreads = 512;

// Thread blocks that a multiprocessor has registers for: with two, rows and columns of a small call all start at once.
constexpr int split_blocks_at_once(int chunks, bool single, bool whole) {
  return whole && chunks <= (single ? 1 : 2) ? 2 : 1;
}

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
  std::int64_t cached = 0;      // of rows too long for registers: tiles of dy and s that stay in shared memory
  bool single = false;          // as FP32

  friend constexpr bool operator==(const SplitPlan&, const SplitPlan&) = default;
};

// `rows`: whether gradients of matrices are asked for; `vectors`: how many of vectors; `dy`: whether there is one.
constexpr SplitPlan plan_split(std::int64_t m, std::int64_t n, bool rows, int vectors, bool dy, const Device& device) {
  SplitPlan plan;
  plan.rows = plan_rows(m, n, 1, 5, kSplitThreads, true, device);
  plan.threads = plan.rows.wide ? kSplitThreads : plan.rows.threads;
  if (m == 1 && rows && (dy || vectors == 0) && !plan.rows.wide) {
    plan.rows.shape.only_row = vectors > 0;
    plan.row_blocks = 1;
    return plan;
  }
  if (vectors > 0) {
    // Columns want a power of two of warps, and many: a pair of strips for each lane beside the slab's.
    int threads = 128;
    while (threads < plan.threads || (threads < kSplitThreads && m > 32)) threads *= 2;
    plan.threads = threads;
    plan.chunks = n > 16384 ? 32 : n > spec::kWide ? 16 : 8;
    while (plan.chunks * 8 > threads) plan.chunks /= 2;
    plan.slabs_each = (n + plan.chunks * 8 - 1) / (plan.chunks * 8);
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
  return std::max(plan.slabs == 0 ? 0 : columns_shared_bytes(plan.threads, plan.chunks),
                  plan.rows.wide ? wide_shared_bytes(2, plan.cached, 2, plan.single) : row_shared_bytes(plan.rows, 2));
}

}  // namespace truenorm::cuda
