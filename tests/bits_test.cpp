// Equal bits: thousands of random calls, each with every instruction set and 1, 2 and 7 threads, every run with
// layouts, alignments, outputs and places of its own, against the definition (support/model). TRUENORM_TEST_CASES sets
// how many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {
namespace {

constexpr int kShards = 8;

constexpr int kDefaultCases = 4000;

int case_count() {
  const char* wanted = std::getenv("TRUENORM_TEST_CASES");
  return wanted == nullptr ? kDefaultCases : std::atoi(wanted);
}

void run(const tn_forward_args& args, const tn_exec& exec) { forward(args, exec); }
void run(const tn_backward_args& args, const tn_exec& exec) { backward(args, exec); }

// Each row by a call of its own.
void run_rows(const tn_forward_args& args, const tn_exec& exec) {
  for (std::int64_t r = 0; r < rows_of(args.x); ++r) {
    tn_forward_args row = args;
    for (tn_tensor* t : {&row.x, &row.residual, &row.y, &row.residual_out}) *t = row_view(*t, r);
    for (tn_tensor* t : {&row.mean, &row.rstd}) {
      if (!absent(*t)) *t = tn_vector(static_cast<float*>(t->data) + r, TN_F32, 1);
    }
    forward(row, exec);
  }
}
void run_rows(tn_backward_args args, const tn_exec& exec) {
  args.dweight = args.dbias = {};  // sums over rows: not a row's own
  if (absent(args.dx) && absent(args.dresidual)) return;
  for (std::int64_t r = 0; r < rows_of(absent(args.dy) ? args.ds : args.dy); ++r) {
    tn_backward_args row = args;
    for (tn_tensor* t : {&row.dy, &row.ds, &row.s, &row.dx, &row.dresidual}) *t = row_view(*t, r);
    for (tn_tensor* t : {&row.mean, &row.rstd}) {
      if (!absent(*t)) *t = tn_vector(static_cast<float*>(t->data) + r, TN_F32, 1);
    }
    backward(row, exec);
  }
}

template <class Args, class Expected>
void check_variations(const Args& args, const Expected& expected, Rng& rng) {
  const std::vector<tn_isa> isas = available_isas();
  for (const tn_isa isa : isas) {
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(testing::Message() << tn_isa_name(isa) << ", " << threads << " threads");
      Arena arena;
      const Args varied = vary(args, rng, arena);
      arena.arm();
      run(varied, on(isa, shared_pool(threads)));
      EXPECT_TRUE(arena.intact()) << "in_place " << varied.in_place;
      expect_bits(varied, expected);
    }
  }
  SCOPED_TRACE("row by row");
  Arena arena;
  const Args varied = vary(args, rng, arena);
  arena.arm();
  run_rows(varied, on(isas[static_cast<std::size_t>(rng.below(std::ssize(isas)))]));
  EXPECT_TRUE(arena.intact());
  if constexpr (std::is_same_v<Args, tn_backward_args>) {
    Args rows = varied;
    rows.dweight = rows.dbias = {};
    expect_bits(rows, expected);
  } else {
    expect_bits(varied, expected);
  }
}

std::string describe(std::uint64_t seed, Size size, const char* direction) {
  return "seed " + std::to_string(seed) + ": " + direction + " of " + std::to_string(size.m) + " x " +
         std::to_string(size.n);
}

void check_case(std::uint64_t seed, bool forward_direction, const Size* wanted = nullptr) {
  Rng rng(seed);
  Arena arena;
  const Size size = wanted != nullptr ? *wanted : random_size(rng);
  SCOPED_TRACE(describe(seed, size, forward_direction ? "forward" : "backward"));
  if (forward_direction) {
    const tn_forward_args args = random_forward(rng, arena, size);
    check_variations(args, model_forward(args), rng);
  } else {
    const tn_backward_args args = random_backward(rng, arena, size);
    check_variations(args, model_backward(args), rng);
  }
}

class Bits_Random : public testing::TestWithParam<int> {};

TEST_P(Bits_Random, Cases) {
  for (int i = GetParam(); i < case_count() && !HasFailure(); i += kShards) {
    check_case(static_cast<std::uint64_t>(i), i / kShards % 2 == 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Shard, Bits_Random, testing::Range(0, kShards));

class Bits_Sizes : public testing::TestWithParam<std::int64_t> {};

TEST_P(Bits_Sizes, ForwardAndBackward) {
  const Size size{GetParam() > 20000 ? 1 : 3, GetParam()};
  for (std::uint64_t seed = 0; seed < 6 && !HasFailure(); ++seed) check_case(900000 + seed, seed % 2 == 0, &size);
}
INSTANTIATE_TEST_SUITE_P(N, Bits_Sizes,
                         testing::Values(1, 2, 3, 7, 17, 63, 64, 127, 128, 384, 513, 640, 769, 1600, 2049, 3584, 4096,
                                         7168, 8192, 16384, 18432, 65537, 131072));

// Outputs so large that they are stored past the caches (kStreamBytes in cpu/forward.cpp), at any alignment; in half of
// the cases all rows of a dense tensor are aligned where the first one is.
TEST(Bits, LargeOutputs) {
  const std::int64_t count = case_count() < kDefaultCases ? 4 : 12;
  for (std::int64_t i = 0; i < count && !HasFailure(); ++i) {
    const Size size{2100 + i, i % 4 < 2 ? 1030 - 20 * i : 512 + 32 * i};
    check_case(800000 + static_cast<std::uint64_t>(i), i % 2 == 0, &size);
  }
}

}  // namespace
}  // namespace truenorm::test
