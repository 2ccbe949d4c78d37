// Faults of published libraries: sizes. (Those that need gigabytes are in cases_large_test.cpp.)
#include <gtest/gtest.h>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

class Cases_Sizes : public testing::Test {
 protected:
  Arena arena;
  Rng rng{14};

  // Forward and backward of m x n, everything asked for.
  void check_size(tn_op op, std::int64_t m, std::int64_t n, tn_dtype type = TN_BF16) {
    SCOPED_TRACE(testing::Message() << m << " x " << n);
    Arena memory;
    tn_forward_args f = forward_args(op);
    f.x = memory.matrix(type, m, n);
    f.weight = memory.vector(type, n);
    f.bias = memory.vector(type, n);
    for (const tn_tensor& t : {f.x, f.weight, f.bias}) fill(t, rng, Fill::normal);
    f.y = memory.matrix(type, m, n);
    f.rstd = memory.vector(TN_F32, m);
    if (op == TN_LAYER_NORM) f.mean = memory.vector(TN_F32, m);
    check(memory, f);
    tn_backward_args b = backward_args(op);
    b.dy = memory.matrix(type, m, n);
    fill(b.dy, rng, Fill::normal);
    b.s = f.x;
    b.weight = f.weight;
    b.mean = f.mean;
    b.rstd = f.rstd;
    b.dx = memory.matrix(type, m, n);
    b.dweight = memory.vector(TN_F32, n);
    b.dbias = memory.vector(TN_F32, n);
    check(memory, b);
  }
};

TEST_F(Cases_Sizes, RowsAroundSixteenBits) {
  for (const std::int64_t m : {65535, 65536, 65537}) check_size(TN_RMS_NORM, m, 3);
}

TEST_F(Cases_Sizes, HiddenSizes) {
  for (const std::int64_t n : {1,   2,    3,    7,    17,   63,   64,   127,   128,   384,   513,   640,
                               769, 1600, 2049, 3584, 4096, 7168, 8192, 16384, 18432, 65537, 131072}) {
    check_size(n % 2 == 0 ? TN_LAYER_NORM : TN_RMS_NORM, 2, n);
  }
}

TEST_F(Cases_Sizes, EveryHiddenSizeUpToTwoBlocksAndMore) {
  for (std::int64_t n = 1; n <= 530; ++n) check_size(n % 2 == 0 ? TN_LAYER_NORM : TN_RMS_NORM, 1, n, TN_F16);
}

TEST_F(Cases_Sizes, RowsAroundTheNumberOfStrips) {
  for (const std::int64_t m : {1, 2, 63, 64, 65, 127, 128, 129, 257}) check_size(TN_RMS_NORM, m, 4097);
  check_size(TN_LAYER_NORM, 1025, 48);
  for (const std::int64_t m : {8191, 8192, 8193, 16385}) check_size(TN_LAYER_NORM, m, 1);
}

TEST_F(Cases_Sizes, NoRows) {
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    check_size(op, 0, 100);
    // Without elements no pointer is needed, in whichever dimension the zero stands.
    for (const auto& [a, b] : {std::pair{0, 4}, std::pair{4, 0}, std::pair{0, 0}, std::pair{1, 0}, std::pair{0, 1}}) {
      tn_forward_args f = forward_args(op);
      f.x = f.residual = f.y = f.residual_out = {nullptr, TN_F32, 3, {a, b, 7}, {70, 7, 1}};
      f.rstd = tn_vector(nullptr, TN_F32, 0);
      forward(f);
    }
  }
}

TEST_F(Cases_Sizes, RanksOneToThreeAreTheSameRows) {
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = arena.matrix(TN_F32, {3, 4, 6, 6 * 128, 128, 0}, 128);  // (4, 6, 128), say of a normalised shape (8, 16)
  fill(f.x, rng, Fill::normal);
  f.y = arena.matrix(TN_F32, 24, 128);
  f.rstd = arena.vector(TN_F32, 24);
  check(arena, f);
  const Bits all = read_bits(f.y);
  for (std::int64_t r = 0; r < 24; ++r) {
    tn_forward_args one = forward_args(TN_RMS_NORM);
    one.x = row_view(f.x, r);
    one.y = arena.vector(TN_F32, 128);
    forward(one);
    const auto begin = all.begin() + r * 128;
    EXPECT_TRUE(equal_bits(one.y, Bits(begin, begin + 128))) << r;
  }
}

}  // namespace
}  // namespace truenorm::test
