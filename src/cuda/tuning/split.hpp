// The backward in which rows and columns go apart (kernels/backward_split.cuh).
#pragma once

#include "cuda/tuning/rows.hpp"

namespace truenorm::cuda {

inline constexpr int kSplitThreads = 512;

struct SplitPlan {
  RowPlan rows;
  int threads = 0;
  std::int64_t row_blocks = 0;  // 0: no gradient of a matrix is asked for
  std::int64_t slabs = 0;       // 0: no gradient of a vector is asked for
  int chunks = 8;               // a slab's width, in chunks of eight columns
  bool slabs_first = false;     // the order in which thread blocks are started

  friend constexpr bool operator==(const SplitPlan&, const SplitPlan&) = default;
};

// `rows`, `columns`: whether gradients of matrices and of vectors are asked for; `dy`: whether there is one.
constexpr SplitPlan plan_split(std::int64_t m, std::int64_t n, bool rows, bool columns, bool dy, const Device& device) {
  SplitPlan plan;
  plan.rows = plan_rows(m, n, 2, 5, kSplitThreads, true, device);
  plan.threads = plan.rows.wide ? kSplitThreads : plan.rows.threads;
  if (m == 1 && rows && (dy || !columns) && !plan.rows.wide) {
    plan.rows.shape.only_row = columns;
    plan.row_blocks = 1;
    return plan;
  }
  if (columns) {
    // Columns want a power of two of warps, and many: a pair of strips for each lane beside the slab's.
    int threads = 128;
    while (threads < plan.threads || (threads < kSplitThreads && m > 32)) threads *= 2;
    plan.threads = threads;
    plan.chunks = n > 16384 ? 32 : spec::strips(n) == 64 ? 16 : 8;
    while (plan.chunks * 8 > threads) plan.chunks /= 2;
    plan.slabs = (n + plan.chunks * 8 - 1) / (plan.chunks * 8);
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

}  // namespace truenorm::cuda
