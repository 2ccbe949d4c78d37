// The backward strip by strip (kernels/backward_strips.cuh): which threads share a row, how many rows are under way.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/tuning/device.hpp"
#include "spec/order.hpp"

namespace truenorm::cuda {

// Who shares a row, and has a strip at a time: (part of) a warp, half a thread block, a thread block, or two of them.
enum class Team { kWarp, kHalf, kBlock, kCluster };

struct StripsPlan {
  bool fits = false;  // else the call goes by rows and columns (tuning/split.hpp)
  Team team = Team::kWarp;
  int chunks = 1;         // chunks of eight elements in each thread
  int rows_per_tile = 1;  // rows of a strip that are summed together
  int log_lanes = 5;      // lanes a row: fewer than 32 only for rows shorter than a block, then a warp has more strips
  int teams = 1;          // of a thread block
  int team_warps = 1;     // of a team, in each thread block
  std::int64_t columns = 0;  // of a row that a thread block has; the last of a cluster may have fewer
  std::int64_t groups = 0;   // of the strips of a thread block that have rows: as many partial sums
  std::size_t shared_bytes = 0;

  constexpr int cluster() const { return team == Team::kCluster ? 2 : 1; }
  constexpr int threads() const { return teams * team_warps * 32; }
  constexpr int strips() const { return teams * (32 >> log_lanes); }
  friend constexpr bool operator==(const StripsPlan&, const StripsPlan&) = default;
};

// The most threads of a thread block with this many chunks in a thread: it leaves each the registers that it needs.
// Where each warp has tiles of its own, FP32's are too large for sixteen.
constexpr int strips_threads(int chunks, bool single, Team team) {
  if (team == Team::kWarp) return single && chunks >= 3 ? 256 : 512;
  return team == Team::kCluster && chunks == 3 ? 384 : 512;
}

// The most thread blocks' worth of partial sums.
constexpr int strips_partials(int chunks, bool single, Team team) {
  const int blocks = static_cast<int>(spec::kBlocksOfStrips);
  if (team == Team::kCluster) return blocks / 2;
  return team == Team::kWarp ? blocks * (512 / strips_threads(chunks, single, team)) : blocks;
}

// Where every warp has a whole row, the weight is the same for all, and there are few registers: it is in shared
// memory.
constexpr bool strips_shared_weight(int chunks, bool single, Team team) {
  return team == Team::kWarp && chunks >= 3 && !single;
}

// Rows of a tile: few warps need more of them to keep the memory busy.
constexpr int strips_rows(int chunks, bool single, bool add, Team team) {
  if (single || chunks >= 3) return 1;
  if (team == Team::kWarp) return chunks == 1 ? 4 : 2;
  if (team == Team::kHalf && !add) return 4;
  return chunks == 1 ? 2 : 1;
}

// By how many tiles their gradients come after their sums, so that nobody waits for sums under way, and there is work
// left while the weight gradients' partial sums travel. There is no room for that where tiles are large.
inline constexpr int kMostLag = 1;
constexpr int strips_lag(int chunks, bool single, bool add, Team team) {
  if (team == Team::kWarp || (single && chunks >= (add ? 2 : 3))) return 0;
  return 1;
}

// Tiles that have a place: one under way (more have been seen to cost time), one whose sums are made, and those whose
// gradients are still to come.
constexpr int strips_stages(int chunks, bool single, bool add, Team team) {
  return 2 + strips_lag(chunks, single, add, team);
}

// ---- Shared memory: barriers, sums of several warps, scratch of the last sums, tiles.

inline constexpr int kTileSums = 256;  // floats a tile: rows * sums * blocks of a row
inline constexpr int kSumPlaces = 4;   // tiles
constexpr int strips_teams(Team team) { return team == Team::kHalf ? 2 : 1; }  // where a team has several warps

constexpr std::size_t strips_sums_bytes(Team team) {
  constexpr std::size_t kPlace = sizeof(unsigned long long) + kTileSums * sizeof(float);
  return team == Team::kWarp ? 0 : kPlace * static_cast<unsigned>(strips_teams(team) * kSumPlaces);
}
// A row for each warp, or for one half of the thread block; and what the final sums want.
constexpr std::size_t strips_scratch_bytes(int chunks, bool single, Team team) {
  const int floats = team == Team::kWarp   ? strips_threads(chunks, single, team) * chunks * 8
                     : team == Team::kHalf ? 256 * 8
                                           : 0;
  const int weight = strips_shared_weight(chunks, single, team) ? 32 * chunks * 8 : 0;
  return sizeof(float) * static_cast<unsigned>(std::max(floats, 2 * 8 * 36) + weight);
}
// A thread's share of a tile: matrices side by side, chunks of 16 bytes, or 32 where matrices are kept as FP32.
constexpr int strips_chunk_bytes(bool single) { return single ? 32 : 16; }
constexpr std::size_t strips_tile_bytes(int chunks, int rows, bool single, bool add, Team team) {
  return std::size_t{1} * static_cast<unsigned>(strips_threads(chunks, single, team)) *
         static_cast<unsigned>(chunks * rows) * static_cast<unsigned>(strips_chunk_bytes(single) * (add ? 3 : 2));
}

// Of a tile: 32 words for each warp.
constexpr std::size_t strips_statistics_bytes(int chunks, bool single, Team team) {
  return std::size_t{4} * static_cast<unsigned>(strips_threads(chunks, single, team));
}

// Floats from one partial sum to the next.
constexpr std::int64_t strips_pitch(std::int64_t n) { return (n + 7) / 8 * 8; }

// Fewer rows are better served row by row and column by column: nobody waits for anybody.
constexpr bool worth_strips(std::int64_t m, std::int64_t n) { return m > 512 || (m >= 256 && m * n >= (1 << 20)); }

// `add`: there is ds; `single`: matrices are kept as FP32.
constexpr StripsPlan plan_strips(std::int64_t m, std::int64_t n, bool add, bool single, const Device& device) {
  StripsPlan plan;
  const std::int64_t blocks = (n + spec::kBlock - 1) / spec::kBlock;
  const std::int64_t strips = spec::strips(n);
  if (n <= spec::kNarrow) {
    plan.chunks = static_cast<int>(blocks);
    if (blocks == 1) {
      while (plan.log_lanes > 3 && (8 << plan.log_lanes) / 2 >= n) --plan.log_lanes;
    }
    plan.teams = static_cast<int>(strips / strips_partials(plan.chunks, single, plan.team)) >> (5 - plan.log_lanes);
    plan.columns = n;
  } else {
    plan.team = n > spec::kWide ? Team::kCluster : n > spec::kMiddle ? Team::kBlock : Team::kHalf;
    if (plan.team == Team::kCluster && device.major < 9) return plan;
    plan.teams = static_cast<int>(strips * plan.cluster() / spec::kBlocksOfStrips);
    const std::int64_t own = (blocks + plan.cluster() - 1) / plan.cluster();
    plan.chunks = own <= 16 ? 1 : own <= 32 ? 2 : 3;
    plan.team_warps = static_cast<int>((own + plan.chunks - 1) / plan.chunks);
    plan.columns = std::int64_t{plan.team_warps} * plan.chunks * spec::kBlock;
  }
  if (plan.threads() > strips_threads(plan.chunks, single, plan.team)) return plan;
  plan.rows_per_tile = strips_rows(plan.chunks, single, add, plan.team);
  plan.groups = (std::min(m, strips) + plan.strips() - 1) / plan.strips();
  const std::size_t fixed = strips_sums_bytes(plan.team) + strips_scratch_bytes(plan.chunks, single, plan.team);
  const std::size_t tile = strips_tile_bytes(plan.chunks, plan.rows_per_tile, single, add, plan.team) +
                           strips_statistics_bytes(plan.chunks, single, plan.team);
  plan.shared_bytes = fixed + tile * static_cast<unsigned>(strips_stages(plan.chunks, single, add, plan.team));
  plan.fits = plan.shared_bytes <= device.shared_bytes;
  return plan;
}

}  // namespace truenorm::cuda
