// How the forward's rows are spread over threads (kernels/forward.cuh). No choice here can change a bit of a result.
#pragma once

#include "cuda/tuning/rows.hpp"

namespace truenorm::cuda {

struct ForwardPlan {
  bool wide = false;             // a thread block goes over the row tile by tile
  bool narrow = false;           // rows no longer than a block
  bool in_registers = false;     // such rows are there from the start, as their vectors may be
  int chunks = 1;                // chunks of eight elements in each thread: 1 to 4
  int threads = 0;               // of a thread block
  int log_lanes = 5;             // lanes a row: fewer than 32 only for rows shorter than a block
  int warps = 1;                 // warps a row
  int rows = 1;                  // of a thread block: more than 1 only where a row has one warp or part of one
  int turns = 1;                 // of a thread block: `rows` rows each
  bool direct = false;           // weight and bias are read where they are: shared memory has rows only
  bool cached = true;            // weight and bias by way of the first-level cache
  std::size_t shared_bytes = 0;  // of a thread block

  friend constexpr bool operator==(const ForwardPlan&, const ForwardPlan&) = default;
};

inline constexpr int kForwardThreads = 768;        // at most
inline constexpr int kForwardDirectThreads = 576;  // where weight and bias are read where they are
inline constexpr int kForwardNarrowThreads = 128;  // of a thread block that holds several rows

// What a call asks of shared memory. x and what is added to it lie there, and the vectors.
struct ForwardOperands {
  bool single;  // matrices are kept as FP32
  bool whole;   // rows start at multiples of sixteen bytes and have whole chunks
  bool layer, add;
  int weight_bytes;  // of an element: 0 where there is no weight
  int bias_bytes;
};

// Whether there are kernels for narrow rows.
constexpr bool has_forward_narrow(bool single) { return !single; }

// Rows that start anywhere are copied by pieces of sixteen bytes, the first as far into a line of 128 as in memory:
// what that takes of shared memory, and the piece in which the last chunk ends.
inline constexpr int kPiece = 16, kLine = 128, kSparePieces = kLine;

// Sums of several warps: places for one or three of them, 32 floats each.
constexpr std::size_t forward_sums_bytes(bool layer) { return sizeof(float) * 32u * (layer ? 3 : 1); }

constexpr std::size_t forward_shared_bytes(const ForwardPlan& plan, const ForwardOperands& of) {
  const std::size_t chunks = static_cast<std::size_t>(plan.threads) * static_cast<unsigned>(plan.chunks);
  const int matrices = (of.add ? 2 : 1) * plan.turns;
  if (plan.in_registers) return forward_sums_bytes(of.layer);
  if (of.whole) {
    const int each = matrices * (of.single ? 32 : 16) + (plan.direct ? 0 : 8 * (of.weight_bytes + of.bias_bytes));
    return forward_sums_bytes(of.layer) + chunks * static_cast<unsigned>(each);
  }
  if (!of.single) {
    const std::size_t runs = static_cast<unsigned>(plan.threads) >> plan.log_lanes;
    return forward_sums_bytes(of.layer) + static_cast<unsigned>(matrices) * (chunks * 16 + runs * kSparePieces) +
           chunks * 8 * static_cast<unsigned>(of.weight_bytes + of.bias_bytes);
  }
  const int vectors = (of.weight_bytes > 0 ? 1 : 0) + (of.bias_bytes > 0 ? 1 : 0);
  const std::size_t runs = chunks >> plan.log_lanes;
  return forward_sums_bytes(of.layer) + static_cast<unsigned>(matrices + vectors) * (chunks * 32 + runs * 16);
}

// A thread with many chunks: what is done once a row is then done by few warps. Few rows, if they are not long, are
// sooner done by more, and so is RMSNorm of FP32. Rows that start anywhere take many registers for each chunk.
constexpr int forward_chunks(std::int64_t blocks, bool few, const ForwardOperands& of) {
  if (blocks <= 3) return static_cast<int>(blocks);
  if (!of.whole && of.single) return blocks > 4 && blocks <= kForwardThreads / 32 * 2 ? 2 : 4;
  // What a warp does once, and at its chunks' ends, is as much as a chunk takes and more.
  if (!of.whole && !few) return blocks == 5 || blocks == 6 ? 2 : 4;
  if (blocks <= 16 && (few || (of.single && !of.add && !of.layer))) return 2;
  // Where many of four would lie past the row's end, and what is done for each chunk is much.
  const bool past_end = (blocks + 3) / 4 * 16 > blocks * 5;
  return past_end && (of.single || (of.layer && blocks <= 6)) ? 2 : 4;
}

// Chunks of a narrow row in each thread: two halve what is done once a row, of which LayerNorm has most; few rows wait
// for each thread's work, and with a residual for memory.
constexpr int narrow_chunks(std::int64_t m, std::int64_t n, const ForwardOperands& of) {
  if (of.layer || !of.whole) return m * n > 1 << 18 ? 2 : 1;
  return !of.add && m * n > 1 << 20 ? 2 : 1;
}

// Vectors of FP32 take as much of shared memory as FP32 rows, twice as much as others: rows in flight are worth more
// where few have room, and in LayerNorm, which has two vectors. Few rows are not many at once anyway, and wait for what
// is asked for late: only where there is no room else. With a residual there is more to wait for beside.
constexpr bool forward_is_direct(const ForwardPlan& plan, bool few, const ForwardOperands& of, const Device& device) {
  const bool large = of.single || of.weight_bytes == 4 || of.bias_bytes == 4;
  if (!of.whole || !large || plan.chunks < 3 || plan.threads > kForwardDirectThreads) return false;
  const std::size_t each = forward_shared_bytes(plan, of);
  if (few) return each > device.shared_bytes;
  if (of.layer) return true;
  if (of.single) return plan.chunks == 4 && 2 * each > device.shared_bytes;
  return plan.chunks == 4 && !of.add && 7 * each > device.shared_bytes;
}

constexpr ForwardPlan plan_forward(std::int64_t m, std::int64_t n, const ForwardOperands& of, const Device& device) {
  // LayerNorm's vectors, of many columns, would push each other out of the first-level cache; the weight by itself is
  // better asked for there, as all thread blocks of a multiprocessor want it.
  constexpr std::int64_t kCachedColumns = 1024;
  ForwardPlan plan;
  const std::int64_t blocks = (n + spec::kBlock - 1) / spec::kBlock;
  plan.narrow = blocks == 1 && has_forward_narrow(of.single);
  plan.in_registers = plan.narrow && of.whole;
  plan.chunks = plan.narrow ? narrow_chunks(m, n, of) : forward_chunks(blocks, m <= 2 * device.multiprocessors, of);
  plan.cached = !of.layer || n <= kCachedColumns;
  const std::int64_t warps = (blocks + plan.chunks - 1) / plan.chunks;
  if (warps * 32 > kForwardThreads || m > kMostRows) {
    plan.wide = true;
    return plan;
  }
  plan.warps = static_cast<int>(warps);
  if (blocks == 1) {
    // With two chunks a lane, four lanes at least: as many as there are sums of halves.
    const int chunk = 8 * plan.chunks, least = plan.narrow && plan.chunks == 2 ? 2 : 0;
    while (plan.log_lanes > least && (chunk << plan.log_lanes) / 2 >= n) --plan.log_lanes;
  }
  plan.rows = plan.warps > 1 ? 1 : kForwardNarrowThreads >> plan.log_lanes;
  // Few rows are better spread over all multiprocessors.
  const int warp_rows = 32 >> plan.log_lanes;
  while (plan.rows / 2 >= warp_rows && m / plan.rows < 2 * device.multiprocessors) plan.rows /= 2;
  plan.threads = (plan.warps << plan.log_lanes) * plan.rows;
  // Narrow rows: what a thread block does once should serve as many rows as there are for it, while all multiprocessors
  // have as many thread blocks as they hold.
  if (plan.narrow ? !plan.in_registers : plan.chunks == 1 && plan.warps == 1) {
    constexpr int kThreadBlocks = 12, kMostTurns = 4;
    const std::int64_t each = m / (std::int64_t{plan.rows} * device.multiprocessors * kThreadBlocks);
    plan.turns = static_cast<int>(std::clamp<std::int64_t>(each, 1, kMostTurns));
  }
  plan.direct = forward_is_direct(plan, m <= 2 * device.multiprocessors, of, device);
  plan.shared_bytes = forward_shared_bytes(plan, of);
  plan.wide = plan.shared_bytes > device.shared_bytes;
  return plan;
}

}  // namespace truenorm::cuda
