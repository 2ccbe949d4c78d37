// Plans of the CUDA backend, which need no GPU: the backward of many rows goes strip by strip for every N that models
// have, whatever its types and operands, and wherever its rows start; no launch is planned that the device or a kernel
// has no room for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda/tuning/forward.hpp"
#include "cuda/tuning/split.hpp"
#include "cuda/tuning/strips.hpp"
#include "spec/order.hpp"

namespace truenorm::cuda {
namespace {

constexpr Device kH200{132, 9, 0, 232448}, kA100{108, 8, 0, 166912};
constexpr std::int64_t kManyRows = 65536, kMostColumns = 18432;

struct Kind {
  const char* name;
  StripsOperands of;
};
constexpr Kind kKinds[] = {
    {"16bit", {.single = false, .layer = false, .add = false, .whole = true}},
    {"16bitWithDs", {.single = false, .layer = false, .add = true, .whole = true}},
    {"LayerNorm16bit", {.single = false, .layer = true, .add = false, .whole = true}},
    {"LayerNorm16bitWithDs", {.single = false, .layer = true, .add = true, .whole = true}},
    {"FP32", {.single = true, .layer = false, .add = false, .whole = true}},
    {"LayerNormFP32WithDs", {.single = true, .layer = true, .add = true, .whole = true}},
    {"Anywhere", {.single = true, .layer = true, .add = false, .whole = false}},
    {"AnywhereWithDs", {.single = true, .layer = false, .add = true, .whole = false}},
};
constexpr StripsOperands kUsual = kKinds[0].of, kUsualWithDs = kKinds[1].of;

void check(const StripsPlan& plan, const StripsKernel& kernel, std::int64_t n) {
  EXPECT_TRUE(plan.fits);
  EXPECT_LE(plan.shared_bytes, kH200.shared_bytes);
  EXPECT_GE(plan.threads(), 32);
  EXPECT_LE(plan.threads(), kernel.threads());
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
  EXPECT_GE(plan.pitch, n);
  EXPECT_EQ(plan.pitch % 8, 0);
}

class CudaPlan_Strips : public testing::TestWithParam<Kind> {};

TEST_P(CudaPlan_Strips, ServeEveryWidthOfModels) {
  const StripsOperands& of = GetParam().of;
  // Two thread blocks of a cluster have no room for three matrices of the widest rows with words to spare.
  const std::int64_t most = of.add && !of.whole ? 16384 : kMostColumns;
  for (std::int64_t n = of.whole ? 8 : 1; n <= most && !HasFailure(); n += of.whole ? 8 : 1) {
    SCOPED_TRACE(testing::Message() << "N = " << n);
    const StripsPlan plan = plan_strips(kManyRows, n, of, kH200);
    check(plan, {plan.chunks, plan.team, of.single, of.layer, of.add, of.whole, plan.few_warps}, n);
  }
}

// Wider rows than any kernel takes go by rows and columns.
TEST_P(CudaPlan_Strips, ServeNoOthers) {
  for (const std::int64_t n : {24584, 32768, 131072}) {
    EXPECT_FALSE(plan_strips(kManyRows, n, GetParam().of, kH200).fits) << "N = " << n;
  }
}
INSTANTIATE_TEST_SUITE_P(Kind, CudaPlan_Strips, testing::ValuesIn(kKinds),
                         [](const auto& tested) { return std::string(tested.param.name); });

// With fewer rows than strips there are fewer groups, none of them without a row.
TEST(CudaPlan, NoGroupOfStripsIsWithoutARow) {
  for (const std::int64_t m : {257, 513, 1000, 4095}) {
    for (std::int64_t n = 8; n <= kMostColumns; n += 8) {
      SCOPED_TRACE(testing::Message() << m << " x " << n);
      const StripsPlan plan = plan_strips(m, n, kUsual, kH200);
      const std::int64_t used = std::min(m, spec::strips(n));
      ASSERT_GE(plan.groups * plan.strips(), used);
      ASSERT_LT((plan.groups - 1) * plan.strips(), used);
    }
  }
}

// Larger tiles for few warps only where there is room for them: else the call would lose its strips.
TEST(CudaPlan, FewWarpsTakeWhatThereIs) {
  for (std::int64_t n = spec::kMiddle + 8; n <= spec::kWide; n += 8) {
    for (const auto& [name, of] : kKinds) {
      ASSERT_TRUE(!of.whole || plan_strips(kManyRows, n, of, kA100).fits) << n << ", " << name;
    }
  }
  EXPECT_TRUE(plan_strips(kManyRows, 2560, kUsualWithDs, kH200).few_warps);
  EXPECT_FALSE(plan_strips(kManyRows, 2560, kUsualWithDs, kA100).few_warps);
}

// Large copies are for tiles that are large, or whose rows start in the middle of sectors, and for kernels that have
// them.
TEST(CudaPlan, LargeCopiesWhereTheyAreFaster) {
  const auto large = [](std::int64_t n, const StripsOperands& of, const Device& device = kH200) {
    return plan_strips(kManyRows, n, of, device).large_copies;
  };
  const auto but = [](StripsOperands of, const auto& change) {
    change(of);
    return of;
  };
  const auto off_sectors = [](StripsOperands& of) { of.sectors = false; };
  const auto layer = [](StripsOperands& of) { of.layer = true; };
  const auto single = [](StripsOperands& of) { of.single = true; };
  EXPECT_TRUE(large(4096, kUsualWithDs));
  EXPECT_TRUE(large(4096, but(kUsualWithDs, layer)));
  EXPECT_TRUE(large(8192, but(but(kUsualWithDs, layer), single)));
  EXPECT_TRUE(large(6144, kUsual));   // few warps, four rows each
  EXPECT_FALSE(large(4096, kUsual));  // 32 KiB a tile
  EXPECT_TRUE(large(8192, but(kUsual, off_sectors)));
  EXPECT_FALSE(large(8200, but(kUsual, off_sectors)));   // 18 KiB a tile
  EXPECT_FALSE(large(18432, but(kUsual, off_sectors)));  // three chunks a thread
  EXPECT_FALSE(large(6144, but(but(kUsual, layer), off_sectors)));
  EXPECT_FALSE(large(4096, but(kUsual, single)));
  EXPECT_FALSE(large(2048, kUsualWithDs));  // two teams a thread block
  EXPECT_FALSE(large(32768, kUsualWithDs));
  EXPECT_FALSE(large(4096, kUsualWithDs, kA100));
}

TEST(CudaPlan, ForwardsFitOnTheDevice) {
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{200}, kManyRows}) {
    for (std::int64_t n = 1; n <= 2 * kMostColumns; n += n < 5000 ? 1 : 7) {
      for (int options = 0; options < 16; ++options) {
        const bool single = (options & 1) != 0, layer = (options & 2) != 0, add = (options & 4) != 0;
        const bool whole = (options & 8) != 0;
        if (whole && n % 8 != 0) continue;
        SCOPED_TRACE(testing::Message() << m << " x " << n << ", options " << options);
        const ForwardPlan plan = plan_forward(m, n, {single, whole, layer, add, 4, layer ? 4 : 0}, kH200);
        if (plan.wide) {  // another kernel's
          ASSERT_GT(n, 8192);
          continue;
        }
        ASSERT_LE(plan.threads, kForwardThreads);
        ASSERT_LE(plan.shared_bytes, kH200.shared_bytes);
        ASSERT_GE(std::int64_t{plan.chunks * plan.warps} << (plan.log_lanes + 3), n);
        // Three chunks are no power of two: their sums are not made by warps apart.
        ASSERT_TRUE(plan.chunks != 3 || plan.warps == 1);
        ASSERT_TRUE(plan.warps == 1 || (plan.rows == 1 && plan.log_lanes == 5));
        ASSERT_TRUE(plan.turns == 1 || (plan.warps == 1 && (plan.narrow ? !plan.in_registers : plan.chunks == 1)));
        // Two chunks of a narrow row have up to four sums, which as many lanes make.
        ASSERT_TRUE(!plan.narrow || (n <= spec::kBlock && !single && (plan.chunks == 1 || plan.log_lanes >= 2)));
        // Kernels that read vectors where they are: of three chunks for LayerNorm, and of four.
        ASSERT_TRUE(!plan.direct || (whole && plan.chunks >= (layer ? 3 : 4) && plan.threads <= kForwardDirectThreads));
      }
    }
  }
}

// Rows and columns: of any call and device, also where rows have to go tile by tile for want of shared memory.
TEST(CudaPlan, SplitsFitOnTheDevice) {
  constexpr Device kSmall{170, 12, 0, 101376}, kLeast{20, 8, 6, 49152};
  for (const Device& device : {kH200, kA100, kSmall, kLeast}) {
    for (const std::int64_t m : {1, 2, 33, 129, 256, 70000}) {
      for (std::int64_t n = 1; n <= 3 * kMostColumns; n += n < 1100 ? 1 : 61) {
        for (int options = 0; options < 16; ++options) {
          const SplitOperands of{(options & 1) != 0, (options >> 1) & 3, (options & 8) != 0, n % 8 == 0};
          if (of.vectors > 2 || (!of.rows && of.vectors == 0)) continue;
          SCOPED_TRACE(testing::Message()
                       << m << " x " << n << ", options " << options << ", shared memory " << device.shared_bytes);
          const SplitPlan plan = plan_split(m, n, of, device);
          const int warps = plan.threads / 32;
          ASSERT_LE(split_shared_bytes(plan), device.shared_bytes);
          ASSERT_LE(plan.threads, kSplitThreads);
          ASSERT_EQ(plan.slabs, of.vectors * plan.slabs_each);
          if (plan.slabs > 0) {
            ASSERT_EQ(warps & (warps - 1), 0);
            ASSERT_LE(plan.chunks * 8, plan.threads);
            ASSERT_GE(plan.slabs_each * plan.chunks * 8, n);
          }
          if (plan.rows.wide) continue;
          ASSERT_GE(std::int64_t{plan.rows.chunks * plan.rows.shape.warps} << (plan.rows.shape.log_lanes + 3), n);
          ASSERT_LE((plan.rows.shape.warps << plan.rows.shape.log_lanes) * plan.rows.shape.rows_per_cta, plan.threads);
          ASSERT_TRUE(plan.row_blocks == 0 || plan.row_blocks * plan.rows.shape.rows_per_cta >= m);
        }
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
