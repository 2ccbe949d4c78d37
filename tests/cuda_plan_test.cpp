// Plans of the CUDA backend, which need no GPU: the backward of many rows goes strip by strip for every N that models
// have, whatever its types and operands; no launch is planned that the device or a kernel has no room for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda/tuning/rows.hpp"
#include "cuda/tuning/split.hpp"
#include "cuda/tuning/strips.hpp"
#include "spec/order.hpp"

namespace truenorm::cuda {
namespace {

constexpr Device kH200{132, 9, 0, 232448};
constexpr int kMostThreads = 1024;  // of a thread block
constexpr std::int64_t kManyRows = 65536, kMostColumns = 18432;

struct Kind {
  const char* name;
  bool single, add;  // as StripsKernel has them
};
constexpr Kind kKinds[] = {
    {"16bit", false, false}, {"16bitWithDs", false, true}, {"FP32", true, false}, {"FP32WithDs", true, true}};

void check(const StripsPlan& plan, const StripsKernel& kernel, std::int64_t n) {
  EXPECT_TRUE(plan.fits);
  EXPECT_LE(plan.shared_bytes, kH200.shared_bytes);
  EXPECT_GE(plan.threads(), 32);
  EXPECT_LE(plan.threads(), kMostThreads);
  EXPECT_GE(plan.chunks, 1);
  EXPECT_LE(plan.chunks, kernel.most_chunks());
  EXPECT_GE(plan.rows_per_tile, 1);

  // A team has room for its row, and its thread blocks are all needed.
  if (plan.team == Team::kWarp) {
    EXPECT_EQ(plan.columns, n);
    EXPECT_GE(std::int64_t{plan.chunks} << (plan.log_lanes + 3), n);
  } else {
    EXPECT_EQ(plan.columns, std::int64_t{plan.team_warps} * plan.chunks * spec::kBlock);
    EXPECT_GE(plan.columns * plan.cluster(), n);
    EXPECT_LT(plan.columns * (plan.cluster() - 1), n);
  }

  // Strips are shared out among thread blocks, whose partial sums are as many as the final sum takes, or fewer.
  EXPECT_EQ(plan.groups * plan.strips(), spec::strips(n));
  EXPECT_LE(plan.groups, kernel.partials());
}

class CudaPlan_Strips : public testing::TestWithParam<Kind> {};

TEST_P(CudaPlan_Strips, ServeEveryWidthOfModels) {
  const auto [name, single, add] = GetParam();
  for (std::int64_t n = 8; n <= kMostColumns && !HasFailure(); n += 8) {
    SCOPED_TRACE(testing::Message() << "N = " << n);
    const StripsPlan plan = plan_strips(kManyRows, n, add, single, kH200);
    check(plan, {plan.chunks, single, add, plan.team}, n);
  }
}

// Wider rows than any kernel takes, and rows that are not whole chunks, go by rows and columns.
TEST_P(CudaPlan_Strips, ServeNoOthers) {
  const auto [name, single, add] = GetParam();
  for (const std::int64_t n : {1, 4095, 4097, 24584, 32768, 131072}) {
    EXPECT_FALSE(plan_strips(kManyRows, n, add, single, kH200).fits) << "N = " << n;
  }
}
INSTANTIATE_TEST_SUITE_P(Kind, CudaPlan_Strips, testing::ValuesIn(kKinds),
                         [](const auto& tested) { return std::string(tested.param.name); });

// With fewer rows than strips there are fewer groups, none of them without a row.
TEST(CudaPlan, NoGroupOfStripsIsWithoutARow) {
  for (const std::int64_t m : {257, 513, 1000, 4095}) {
    for (std::int64_t n = 8; n <= kMostColumns; n += 8) {
      SCOPED_TRACE(testing::Message() << m << " x " << n);
      const StripsPlan plan = plan_strips(m, n, false, false, kH200);
      const std::int64_t used = std::min(m, spec::strips(n));
      ASSERT_GE(plan.groups * plan.strips(), used);
      ASSERT_LT((plan.groups - 1) * plan.strips(), used);
    }
  }
}

TEST(CudaPlan, ForwardsFitOnTheDevice) {
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{200}, kManyRows}) {
    for (std::int64_t n = 1; n <= kMostColumns; ++n) {
      for (int options = 0; options < 8; ++options) {
        const bool single = (options & 1) != 0, layer = (options & 2) != 0, add = (options & 4) != 0;
        SCOPED_TRACE(testing::Message() << m << " x " << n << ", options " << options);
        const RowPlan plan = plan_forward(m, n, single, layer, add, kH200);
        if (plan.wide) continue;  // another kernel's
        ASSERT_LE(plan.threads, kMostThreads);
        ASSERT_LE(forward_shared_bytes(plan, layer), kH200.shared_bytes);
        ASSERT_GE(std::int64_t{plan.chunks * plan.shape.warps} << (plan.shape.log_lanes + 3), n);
      }
    }
  }
}

// Long rows keep all of their tiles, or as many as there is room for; where two thread blocks are meant to share a
// multiprocessor, both fit.
TEST(CudaPlan, LongRowsKeepWhatFits) {
  constexpr std::size_t kReserved = 1 << 10;  // of each thread block, by the system
  for (std::int64_t n = 8; n <= 40 * kTile; n += 4088) {
    for (const bool single : {false, true}) {
      SCOPED_TRACE(testing::Message() << "N = " << n << (single ? ", FP32" : ""));
      const std::int64_t tiles = (n + kTile - 1) / kTile, forward = wide_cached_tiles(n, single, kH200);
      ASSERT_LE(wide_shared_bytes(2, forward, 1, single), kH200.shared_bytes);
      ASSERT_TRUE(forward == tiles || (forward < tiles && forward % kForwardTiles == 0));
      for (const bool columns : {false, true}) {
        const std::int64_t cached = split_cached_tiles(n, single, columns, kH200);
        const std::size_t bytes = wide_shared_bytes(2, cached, 2, single);
        ASSERT_LE(bytes, kH200.shared_bytes);
        ASSERT_TRUE(cached == tiles || (cached < tiles && cached % kBackwardTiles == 0));
        if (columns && !single) {
          ASSERT_LE(2 * (bytes + kReserved), kH200.shared_bytes + kReserved);
        }
      }
    }
  }
}

}  // namespace
}  // namespace truenorm::cuda
