// How rows are spread over threads. No choice here can change a bit of a result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/tuning/device.hpp"
#include "spec/order.hpp"
#include "spec/types.hpp"

namespace truenorm::cuda {

// Rows are counted in 32 bits, and a row past the last is still a number; more of them go tile by tile.
inline constexpr std::int64_t kMostRows = INT32_MAX - 65536;

// The threads of a row; see device/reduce.cuh.
struct RowShape {
  int log_lanes = 5;     // lanes a row: fewer than 32 only for rows shorter than a block
  int warps = 1;         // warps a row
  int rows_per_cta = 1;  // more than 1 only where a row has one warp or part of one

  friend constexpr bool operator==(const RowShape&, const RowShape&) = default;
};

struct RowPlan {
  bool wide = false;  // a thread block goes over the row tile by tile
  int chunks = 1;     // chunks of eight elements in each thread
  int threads = 0;    // of a thread block
  RowShape shape;

  friend constexpr bool operator==(const RowPlan&, const RowPlan&) = default;
};

// As few chunks in a thread as `threads` allow, at most `most`.
constexpr RowPlan plan_rows(std::int64_t m, std::int64_t n, int most, int threads, const Device& device) {
  constexpr int kNarrowThreads = 128;  // of a thread block that holds several rows
  RowPlan plan;
  const std::int64_t blocks = (n + spec::kBlock - 1) / spec::kBlock;
  const auto warps_with = [&](int chunks) { return (blocks + chunks - 1) / chunks; };
  while (plan.chunks < most && warps_with(plan.chunks) * 32 > threads) ++plan.chunks;
  if (warps_with(plan.chunks) * 32 > threads) {
    plan.wide = true;
    return plan;
  }
  plan.shape.warps = static_cast<int>(warps_with(plan.chunks));
  if (blocks == 1) {
    while (plan.shape.log_lanes > 0 && (8 << plan.shape.log_lanes) / 2 >= n) --plan.shape.log_lanes;
  }
  int rows = plan.shape.warps > 1 ? 1 : kNarrowThreads >> plan.shape.log_lanes;
  // Few rows are better spread over all multiprocessors.
  const int warp_rows = 32 >> plan.shape.log_lanes;
  while (rows / 2 >= warp_rows && m / rows < 2 * device.multiprocessors) rows /= 2;
  plan.shape.rows_per_cta = rows;
  plan.threads = (plan.shape.warps << plan.shape.log_lanes) * rows;
  return plan;
}

// ---- Shared memory.

// What `sums` sums of a row need.
constexpr std::size_t row_shared_bytes(const RowPlan& plan, int sums) {
  return plan.shape.warps == 1 ? 0 : sizeof(float) * static_cast<unsigned>(sums * plan.shape.warps * plan.chunks);
}

// Rows too long for registers: a thread block of kWideThreads goes over a row tile by tile (device/wide.cuh).
inline constexpr int kWideThreads = 512;
inline constexpr int kTile = kWideThreads * 8;  // columns: a block of 256 for each warp
inline constexpr int kTilesPerSegment = 64;     // 1024 blocks: a complete tree of their own

constexpr std::size_t wide_shared_bytes(int sums) {
  return sizeof(float) * static_cast<unsigned>(sums * (kWideThreads / 32 * kTilesPerSegment + 32));
}

// Tiles of a whole row whose loads are under way together: in the forward, and in the backward, which has two matrices.
inline constexpr int kForwardTiles = 4, kBackwardTiles = 2;

// Thread blocks that a multiprocessor has registers for: where it has shared memory for two as well, one loads while
// the other stores.
constexpr int forward_wide_blocks_at_once(bool single, bool whole) { return single && whole ? 1 : 2; }
constexpr int backward_wide_blocks_at_once(bool single, bool whole) { return !single && whole ? 2 : 1; }

// What `cached` tiles of `matrices` matrices need beside the sums.
constexpr std::size_t wide_shared_bytes(int sums, std::int64_t cached, int matrices, bool single) {
  return wide_shared_bytes(sums) + static_cast<std::size_t>(cached * matrices) * kTile * (single ? 4u : 2u);
}

// Tiles that `bytes` of shared memory have room for: all of the row, or `together` at a time.
constexpr std::int64_t wide_cached_tiles(std::int64_t n, std::size_t bytes, int matrices, bool single, int together) {
  const std::int64_t tiles = (n + kTile - 1) / kTile;
  const std::size_t left = bytes - std::min(bytes, wide_shared_bytes(2));
  const auto room = static_cast<std::int64_t>(left / (kTile * (single ? 4u : 2u)) / static_cast<unsigned>(matrices));
  return tiles <= room ? tiles : room / together * together;
}

// Tiles of s that the forward keeps between its passes.
constexpr std::int64_t wide_cached_tiles(std::int64_t n, bool single, const Device& device) {
  return wide_cached_tiles(n, device.shared_bytes, 1, single, kForwardTiles);
}

}  // namespace truenorm::cuda
