// How rows are spread over threads. No choice here can change a bit of a result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spec/order.hpp"
#include "spec/types.hpp"
#include "cuda/tuning/device.hpp"

namespace truenorm::cuda {

// The threads of a row; see kernels/forward.cuh and device/reduce.cuh.
struct RowShape {
  int log_lanes = 5;     // lanes a row: fewer than 32 only for rows shorter than a block
  int warps = 1;         // warps a row
  int rows_per_cta = 1;  // more than 1 only where a row has one warp or part of one

  friend constexpr bool operator==(const RowShape&, const RowShape&) = default;
};

struct RowPlan {
  bool wide = false;  // a thread block goes over the row tile by tile
  int chunks = 1;     // chunks of eight elements in each thread: 1, 2 or 4
  int threads = 0;    // of a thread block
  RowShape shape;

  friend constexpr bool operator==(const RowPlan&, const RowPlan&) = default;
};

// The most threads that a kernel with this many chunks in a thread is launched with: it leaves each the registers that
// it needs.
constexpr int most_threads(int chunks) { return chunks == 1 ? 1024 : chunks == 2 ? 768 : 512; }

// `most`: a further limit on threads. `wanted` chunks in a thread, as far as the row's length allows.
constexpr RowPlan plan_rows(std::int64_t m, std::int64_t n, int wanted, int most, const Device& device) {
  constexpr int kNarrowThreads = 128;  // of a thread block that holds several rows
  RowPlan plan;
  const std::int64_t blocks = (n + spec::kBlock - 1) / spec::kBlock;
  int rows_in_block = 1;
  if (blocks == 1) {
    while (plan.shape.log_lanes > 0 && (8 << plan.shape.log_lanes) / 2 >= n) --plan.shape.log_lanes;
    rows_in_block = kNarrowThreads >> plan.shape.log_lanes;
  } else if (blocks <= 4) {
    plan.chunks = blocks == 2 ? 2 : 4;
    rows_in_block = kNarrowThreads / 32;
  } else {
    plan.chunks = wanted;
    while (plan.chunks < 4 && blocks > std::int64_t{std::min(most, most_threads(plan.chunks))} / 32 * plan.chunks) {
      plan.chunks *= 2;
    }
    if (blocks > std::int64_t{std::min(most, most_threads(plan.chunks))} / 32 * plan.chunks) {
      plan.wide = true;
      return plan;
    }
    plan.shape.warps = static_cast<int>((blocks + plan.chunks - 1) / plan.chunks);
  }
  // Few rows are better spread over all multiprocessors.
  const int least = 32 >> plan.shape.log_lanes;  // a warp's
  while (rows_in_block / 2 >= least && m / rows_in_block < 2 * device.multiprocessors) rows_in_block /= 2;
  plan.shape.rows_per_cta = rows_in_block;
  plan.threads = (plan.shape.warps << plan.shape.log_lanes) * rows_in_block;
  return plan;
}

constexpr RowPlan plan_forward(std::int64_t m, std::int64_t n, const Device& device) {
  return plan_rows(m, n, m <= 2 * device.multiprocessors ? 1 : 4, 1024, device);
}

}  // namespace truenorm::cuda
