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
  int chunks = 1;          // chunks of eight elements in each thread
  int rows_per_tile = 1;   // rows of a strip that are summed together
  int log_lanes = 5;       // lanes a row: fewer than 32 only for rows shorter than a block, then a warp has more strips
  int teams = 1;           // of a thread block
  int team_warps = 1;      // of a team, in each thread block
  bool few_warps = false;  // the kernel for teams that have few warps in a thread block
  std::int64_t columns = 0;   // of a row that a thread block has; the last of a cluster may have fewer
  std::int64_t pitch = 0;     // floats from a row of partial sums to the next: the columns and a few more
  std::int64_t groups = 0;    // of the strips of a thread block that have rows: as many partial sums
  bool large_copies = false;  // one thread has whole rows copied, from the third tile on
  std::size_t shared_bytes = 0;

  constexpr int cluster() const { return team == Team::kCluster ? 2 : 1; }
  constexpr int threads() const { return teams * team_warps * 32; }
  constexpr int strips() const { return teams * (32 >> log_lanes); }
  friend constexpr bool operator==(const StripsPlan&, const StripsPlan&) = default;
};

inline constexpr int kTileSums = 256;  // floats a tile where a row has several warps: rows * sums * blocks of a row
inline constexpr int kSumPlaces = 4;   // tiles that have a place for those
inline constexpr int kMostLag = 1;
inline constexpr int kCopyBarriers = 96;  // bytes: two barriers a place, and as many as let tiles start at 128

// What is asked of a call that matters for how it is done.
struct StripsOperands {
  bool single;          // matrices are kept as FP32
  bool layer;           // LayerNorm
  bool add;             // there is ds
  bool whole;           // rows start at multiples of sixteen bytes and have whole chunks
  bool sectors = true;  // rows start at multiples of 32 bytes
};

// What a kernel is compiled for, and what follows from that.
struct StripsKernel {
  int chunks;  // of eight elements in each thread
  Team team;
  bool single, layer, add, whole;  // as StripsOperands has them
  bool few_warps = false;

  constexpr bool warp() const { return team == Team::kWarp; }
  constexpr int cluster() const { return team == Team::kCluster ? 2 : 1; }
  constexpr int matrices() const { return add ? 3 : 2; }
  // The most warps of a thread block that few_warps is for. With ds twelve of them leave shared memory no room to
  // spare, and are slower.
  constexpr int few() const { return add ? 10 : 12; }
  constexpr int most_chunks() const { return warp() ? 4 : team == Team::kCluster ? 3 : 1; }  // that kernels exist for

  // The most threads of a thread block: it leaves each the registers that it needs. Where each warp has tiles of its
  // own, FP32's are too large for sixteen.
  constexpr int threads() const {
    if (few_warps) return few() * 32;
    if (warp()) return single && chunks >= 3 ? 256 : 512;
    return team == Team::kCluster && chunks == 3 ? 384 : 512;
  }
  // The most thread blocks' worth of partial sums.
  constexpr int partials() const {
    constexpr int kBlocks = static_cast<int>(spec::kBlocksOfStrips);
    return warp() ? kBlocks * (512 / threads()) : kBlocks / cluster();
  }
  // Where every warp has a whole row, the weight is the same for all; it is in shared memory where registers are few.
  constexpr bool shared_weight() const { return warp() && chunks >= 3 && !single; }

  // Rows of a tile: few warps need more of them to keep the memory busy.
  constexpr int rows() const {
    if (few_warps) return single ? 2 : 4;
    if (single || chunks >= 3) return 1;
    if (warp()) return chunks == 1 ? 4 : 2;
    if (team == Team::kHalf && !add) return 4;
    return chunks == 1 ? 2 : 1;
  }
  // By how many tiles their gradients come after their sums, so that nobody waits for sums under way, and there is work
  // left while the weight gradients' partial sums travel. There is no room for that where tiles are large.
  constexpr int lag() const { return warp() || (single && chunks >= (add ? 2 : 3)) ? 0 : kMostLag; }
  // Tiles that have a place: one under way (more have been seen to cost time), one whose sums are made, and those whose
  // gradients are still to come.
  constexpr int stages() const { return 2 + lag(); }

  // ---- Shared memory, in this order: barriers and sums of several warps, scratch of the last sums, tiles, statistics.

  constexpr int teams() const { return team == Team::kHalf ? 2 : 1; }  // where a team has several warps
  // Whether a tile's rows lie in shared memory as they do in memory, so that large copies may bring them. FP32 has its
  // chunks' places to work out then, which costs more than it gives without ds; and three chunks a thread are faster
  // side by side in RMSNorm without ds, whose tiles do not get large enough anyway.
  constexpr bool by_rows() const {
    const bool several_warps = team == Team::kBlock || team == Team::kCluster;
    return whole && several_warps && (add || (!single && (layer || chunks < 3)));
  }
  // Whether there is code for large copies. LayerNorm without ds is slower with them: it waits for each tile's sums
  // rather than for memory.
  constexpr bool large_copies() const { return by_rows() && (add || !layer); }
  constexpr int sums_bytes() const {
    constexpr std::size_t kPlace = sizeof(unsigned long long) + kTileSums * sizeof(float);
    return warp() ? 0 : static_cast<int>(kPlace) * teams() * kSumPlaces + (by_rows() ? kCopyBarriers : 0);
  }
  // A block of a row for each warp, or for each of one half of the thread block, which the final sums use again; the
  // weight.
  constexpr int scratch_bytes() const {
    const int floats = warp() ? threads() * 8 : team == Team::kHalf ? 256 * 8 : 0;
    return kFloat * (std::max(floats, 2 * 8 * 36) + (shared_weight() ? 32 * chunks * 8 : 0));
  }
  // Of every thread. Rows that start anywhere: runs of eight lanes or more have a word further.
  constexpr int chunk_bytes() const { return threads() * (single ? 32 : 16) + (whole ? 0 : threads() / 8 * 16); }
  constexpr int matrix_bytes() const { return rows() * chunks * chunk_bytes(); }
  constexpr int tile_bytes() const { return matrices() * matrix_bytes(); }
  constexpr int statistics_bytes() const { return kFloat * threads(); }  // of a tile: 32 words for each warp
  constexpr std::size_t shared_bytes() const {
    const int tiles = stages() * (tile_bytes() + statistics_bytes());
    return static_cast<unsigned>(sums_bytes() + scratch_bytes() + tiles);
  }

 private:
  static constexpr int kFloat = sizeof(float);
};

// Whether there is a kernel for few warps.
constexpr bool has_few_warps(Team team, int chunks) {
  return (team == Team::kBlock || team == Team::kCluster) && chunks == 1;
}

// Fewer rows are better served row by row and column by column: nobody waits for anybody.
constexpr bool worth_strips(std::int64_t m) { return m > 256; }

// Large copies are worth it where a tile is large enough to keep the memory busy while the one before it is used, or
// large and has rows that start in the middle of sectors of 32 bytes, which what a few lanes copy by themselves then
// asks for twice.
constexpr bool worth_large_copies(int tile_bytes, bool sectors) { return tile_bytes > (sectors ? 40 : 24) * 1024; }

constexpr StripsPlan plan_strips(std::int64_t m, std::int64_t n, const StripsOperands& of, const Device& device) {
  StripsPlan plan;
  const std::int64_t blocks = (n + spec::kBlock - 1) / spec::kBlock;
  const std::int64_t strips = spec::strips(n);
  plan.team = n > spec::kWide     ? Team::kCluster
              : n > spec::kMiddle ? Team::kBlock
              : n > spec::kNarrow ? Team::kHalf
                                  : Team::kWarp;
  if (plan.team == Team::kCluster && device.major < 9) return plan;
  const std::int64_t own = (blocks + plan.cluster() - 1) / plan.cluster();  // of a thread block
  plan.chunks = static_cast<int>(plan.team == Team::kWarp ? blocks : (own + 15) / 16);
  const auto warps = static_cast<int>((own + plan.chunks - 1) / plan.chunks);  // of a row, in each thread block
  StripsKernel kernel{plan.chunks, plan.team, of.single, of.layer, of.add, of.whole, true};
  kernel.few_warps =
      has_few_warps(plan.team, plan.chunks) && warps <= kernel.few() && kernel.shared_bytes() <= device.shared_bytes;
  plan.few_warps = kernel.few_warps;
  if (plan.team == Team::kWarp) {
    if (blocks == 1) {
      while (plan.log_lanes > 3 && (8 << plan.log_lanes) / 2 >= n) --plan.log_lanes;
    }
    plan.teams = static_cast<int>(strips / kernel.partials()) >> (5 - plan.log_lanes);
    // Few rows are better spread over twice as many thread blocks, as far as their partial sums have room.
    if (plan.teams == 16 && std::min(m, strips) <= kernel.partials() * (std::int64_t{8} << (5 - plan.log_lanes))) {
      plan.teams = 8;
    }
    plan.columns = n;
  } else {
    plan.teams = static_cast<int>(strips / kernel.partials());
    plan.team_warps = warps;
    plan.columns = std::int64_t{plan.team_warps} * plan.chunks * spec::kBlock;
  }
  plan.pitch = (n + 7) / 8 * 8;
  plan.rows_per_tile = kernel.rows();
  plan.groups = (std::min(m, strips) + plan.strips() - 1) / plan.strips();
  plan.shared_bytes = kernel.shared_bytes();
  plan.fits = plan.chunks <= kernel.most_chunks() && plan.threads() <= kernel.threads() &&
              plan.shared_bytes <= device.shared_bytes;
  plan.large_copies = plan.fits && device.major >= 9 && kernel.large_copies() &&
                      worth_large_copies(kernel.tile_bytes() / kernel.threads() * plan.threads(), of.sectors);
  return plan;
}

}  // namespace truenorm::cuda
