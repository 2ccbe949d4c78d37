// The backward strip by strip (kernels/backward_strips.cuh): which rows of threads, how deep a ring.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/tuning/device.hpp"
#include "spec/order.hpp"

namespace truenorm::cuda {

struct StripsPlan {
  bool fits = false;      // else the call goes by rows and columns (tuning/split.hpp)
  int cluster = 1;        // thread blocks that share a row
  int chunks = 1;         // chunks of eight elements in each thread
  int rows_per_tile = 1;  // rows of a strip that are summed together
  int log_lanes = 5;      // lanes a row: fewer than 32 only for rows shorter than a block
  int warps = 1;          // of a thread block
  int strips = 1;         // that a thread block (or cluster) works on side by side
  int stages = 2;         // tiles in the ring
  std::size_t ring_bytes = 0;
  std::int64_t columns = 0;  // of a row that a thread block has; the last of a cluster may have fewer
  std::int64_t groups = 0;   // of `strips` strips that have rows: as many partial sums

  constexpr int threads() const { return warps * 32; }
  friend constexpr bool operator==(const StripsPlan&, const StripsPlan&) = default;
};

inline constexpr int kMaxStages = 8;

// The most threads of a thread block with this many chunks in a thread: it leaves each the registers that it needs.
constexpr int strips_threads(int chunks) { return chunks <= 2 ? 512 : chunks == 3 ? 384 : 256; }

// Shared memory before the ring: barriers, and the sums of three tiles.
inline constexpr int kTileSums = 256;  // floats a tile: rows * sums * blocks of a row
constexpr std::size_t strips_fixed_bytes() {
  return (2 * kMaxStages + 4) * sizeof(unsigned long long) + 3 * kTileSums * sizeof(float);
}

// Fewer rows are better served row by row and column by column: nobody waits for anybody.
constexpr bool worth_strips(std::int64_t m, std::int64_t n) { return m >= 256 && m * n >= (1 << 18); }

// `element_bytes`: of one element of each matrix that is read, added up; `single`: they are kept as FP32.
constexpr StripsPlan plan_strips(std::int64_t m, std::int64_t n, int element_bytes, bool single, const Device& device) {
  StripsPlan plan;
  if (device.major < 9 || n % 8 != 0) return plan;
  const std::int64_t blocks = (n + spec::kBlock - 1) / spec::kBlock;
  const std::int64_t strips = spec::strips(n);
  if (n <= spec::kNarrow) {
    plan.strips = static_cast<int>(strips / spec::kBlocksOfStrips);
    plan.chunks = static_cast<int>(blocks);
    if (blocks == 1) {
      while (plan.log_lanes > 0 && (8 << plan.log_lanes) / 2 >= n) --plan.log_lanes;
    }
    plan.warps = std::max(1, (plan.strips << plan.log_lanes) / 32);
    plan.columns = n;
    plan.rows_per_tile = single ? 1 : 2;
  } else {
    plan.cluster = n > spec::kWide ? 2 : 1;
    const std::int64_t own = (blocks + plan.cluster - 1) / plan.cluster;
    plan.chunks = own <= 16 ? 1 : own <= 32 ? 2 : 3;
    plan.warps = static_cast<int>((own + plan.chunks - 1) / plan.chunks);
    plan.columns = std::int64_t{plan.warps} * plan.chunks * spec::kBlock;
    plan.rows_per_tile = plan.chunks > 1 ? 1 : plan.warps <= 8 && plan.cluster == 1 ? 4 : 2;
  }
  if (plan.threads() > strips_threads(plan.chunks)) return plan;
  plan.groups = (std::min(m, strips) + plan.strips - 1) / plan.strips;
  const std::size_t room = device.shared_bytes - strips_fixed_bytes();
  const auto tile = [&] {
    return static_cast<std::size_t>(plan.columns * plan.strips * plan.rows_per_tile * element_bytes);
  };
  // Wide rows need three: one being used, one whose gradients are being made, one under way.
  const std::size_t least = n <= spec::kNarrow ? 2 : 3;
  while (n > spec::kNarrow && room / tile() < least && plan.rows_per_tile > 1) plan.rows_per_tile /= 2;
  const std::size_t wanted = n <= spec::kNarrow ? 4 : 5;
  plan.stages = static_cast<int>(std::min(wanted, room / tile()));
  plan.fits = room / tile() >= least;
  plan.ring_bytes = tile() * static_cast<std::size_t>(plan.stages);
  return plan;
}

constexpr std::size_t strips_shared_bytes(const StripsPlan& plan) { return strips_fixed_bytes() + plan.ring_bytes; }

}  // namespace truenorm::cuda
