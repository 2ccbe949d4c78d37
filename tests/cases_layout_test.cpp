// Faults of published libraries: alignment and strides.
#include <gtest/gtest.h>

#include <string>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

constexpr std::int64_t kM = 6, kN = 300;

class Cases_Layout : public testing::Test {
 protected:
  Arena arena;
  Rng rng{12};

  tn_tensor filled(tn_dtype type, const Layout& layout, std::int64_t n = kN) {
    const tn_tensor t = arena.matrix(type, layout, n);
    fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor filled_vector(tn_dtype type, std::int64_t n, std::int64_t offset = 0) {
    const tn_tensor t = arena.vector(type, n, offset);
    fill(t, rng, Fill::normal);
    return t;
  }
  static Layout at(std::int64_t offset) {
    Layout l = dense(kM, kN);
    l.offset = offset;
    return l;
  }

  // RMSNorm's backward of `dy`, with everything asked for. rstd are any positive numbers.
  tn_backward_args backward_of(const tn_tensor& dy) {
    tn_backward_args b = backward_args(TN_RMS_NORM);
    const std::int64_t m = rows_of(dy), n = columns_of(dy);
    b.dy = dy;
    b.s = filled(TN_BF16, dense(m, n), n);
    b.rstd = arena.vector(TN_F32, m);
    for (std::int64_t r = 0; r < m; ++r) set_value(b.rstd, 0, r, 0.5f + static_cast<float>(rng.uniform()));
    b.weight = filled_vector(TN_F32, n);
    b.dx = arena.matrix(TN_BF16, m, n);
    b.dweight = arena.vector(TN_F32, n);
    b.dbias = arena.vector(TN_F32, n);
    return b;
  }

  static void expect_refused(const tn_backward_args& b, const std::string& name) {
    tn_error error;
    tn_workspace none{};
    EXPECT_EQ(tn_backward(nullptr, &b, &none, &error), TN_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(error.message).substr(0, name.size()), name) << error.message;
  }
};

TEST_F(Cases_Layout, OneElementOffAlignmentSeparatelyAndTogether) {
  for (const tn_dtype type : {TN_F32, TN_F16, TN_BF16}) {
    const tn_tensor x = filled(type, dense(kM, kN)), w = filled_vector(type, kN), dy = filled(type, dense(kM, kN));
    ForwardBits first;
    BackwardBits first_back;
    for (int which = 0; which < 16; ++which) {  // bits: x, weight, dy, outputs
      Arena memory;
      tn_forward_args f = forward_args(TN_RMS_NORM);
      f.x = memory.matrix(type, at(which & 1), kN);
      f.weight = memory.vector(type, kN, which >> 1 & 1);
      f.y = memory.matrix(type, at(which >> 3), kN);
      f.rstd = memory.vector(TN_F32, kM, which >> 3);
      write_bits(f.x, read_bits(x));
      write_bits(f.weight, read_bits(w));
      check(memory, f);
      tn_backward_args b = backward_args(TN_RMS_NORM);
      b.dy = memory.matrix(type, at(which >> 2 & 1), kN);
      write_bits(b.dy, read_bits(dy));
      b.s = f.x;
      b.weight = f.weight;
      b.rstd = f.rstd;
      b.dx = memory.matrix(type, at(which >> 3), kN);
      b.dweight = memory.vector(type, kN, which >> 3);
      check(memory, b);
      if (which == 0) {
        first = {read_bits(f.y), {}, {}, read_bits(f.rstd)};
        first_back = {read_bits(b.dx), {}, read_bits(b.dweight), {}};
      }
      expect_bits(f, first);
      expect_bits(b, first_back);
    }
  }
}

TEST_F(Cases_Layout, QueriesOfAFusedQkvBufferInPlace) {
  constexpr std::int64_t tokens = 5, heads = 4, d = 128;
  const tn_tensor qkv = filled(TN_BF16, dense(tokens, 3 * heads * d), 3 * heads * d);
  const Bits before = read_bits(qkv);
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = {qkv.data, TN_BF16, 3, {tokens, heads, d}, {3 * heads * d, d, 1}};
  f.weight = filled_vector(TN_BF16, d);
  f.y = arena.matrix(TN_BF16, tokens * heads, d);
  check(arena, f);
  const Bits apart = read_bits(f.y);
  // Written over the queries themselves: keys and values stay.
  f.y = f.x;
  f.in_place = TN_Y_OVER_X;
  arena.allow(f.y);
  arena.arm();
  forward(f);
  EXPECT_TRUE(arena.intact());
  EXPECT_TRUE(equal_bits(f.y, apart));
  const Bits after = read_bits(qkv);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (i % (3 * heads * d) < heads * d) continue;
    EXPECT_EQ(after[i], before[i]) << i;
  }
}

TEST_F(Cases_Layout, OuterStrideThatIsNotInnerCountTimesInnerStride) {
  const Layout padded{3, 3, 4, 4 * 200 + 77, 200, 5};
  tn_forward_args f = forward_args(TN_LAYER_NORM);
  f.x = filled(TN_F16, padded, 200);
  f.y = arena.matrix(TN_F32, 12, 200);
  f.mean = arena.vector(TN_F32, 12);
  f.rstd = arena.vector(TN_F32, 12);
  check(arena, f);
  tn_backward_args b = backward_of(f.x);
  check(arena, b);
}

TEST_F(Cases_Layout, ExpandedGradient) {
  const tn_tensor one = filled(TN_F32, dense(1, kN));
  tn_tensor dy = one;
  dy.shape[0] = kM;
  dy.strides[0] = 0;
  check(arena, backward_of(dy));
  dy.ndim = 3;
  dy.shape[0] = 2;
  dy.shape[1] = 3;
  dy.shape[2] = kN;
  dy.strides[0] = dy.strides[1] = 0;
  dy.strides[2] = 1;
  check(arena, backward_of(dy));
}

TEST_F(Cases_Layout, OverlappingRowsOfAnInput) {
  tn_tensor dy = filled_vector(TN_BF16, kN + 2 * (kM - 1));
  dy.ndim = 2;
  dy.shape[0] = kM;
  dy.shape[1] = kN;
  dy.strides[0] = 2;
  dy.strides[1] = 1;
  check(arena, backward_of(dy));
}

TEST_F(Cases_Layout, TransposedRowAxes) { check(arena, backward_of(filled(TN_BF16, {3, 2, 3, kN, 2 * kN, 0}))); }

TEST_F(Cases_Layout, GradientWithStepTwoOnTheLastDimensionIsRefused) {
  tn_backward_args b = backward_of(filled(TN_F32, dense(kM, kN)));
  b.dy.strides[1] = 2;
  expect_refused(b, "dy: got stride 2");
  b.dy.strides[1] = 0;  // what .sum().backward() expands
  expect_refused(b, "dy: got stride 0");
}

TEST_F(Cases_Layout, ColumnStrideOtherThanOneIsRefusedByName) {
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = filled(TN_F32, dense(kM, kN));
  f.y = arena.matrix(TN_F32, kM, kN);
  f.x.strides[0] = 1;
  f.x.strides[1] = kM;
  arena.arm();
  tn_error error;
  EXPECT_EQ(tn_forward(nullptr, &f, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(error.message), "x: got stride 6 in its last dimension; needs 1 (make it contiguous there)");
  EXPECT_TRUE(arena.intact());
}

TEST_F(Cases_Layout, AnyColumnStrideWhereNIsOne) {
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = filled(TN_F32, dense(kM, 1), 1);
  f.y = arena.matrix(TN_F32, kM, 1);
  f.x.strides[1] = 0;
  f.y.strides[1] = 17;
  check(arena, f);
}

TEST_F(Cases_Layout, EachOutputHasStridesOfItsOwn) {
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = filled(TN_BF16, {2, 1, kM, 0, kN + 1, 0});
  f.residual = filled(TN_F32, {3, 2, 3, 3 * kN + 50, kN, 2});
  f.y = arena.matrix(TN_BF16, {2, 1, kM, 0, kN + 13, 3}, kN);
  f.residual_out = arena.matrix(TN_F32, {3, 3, 2, 2 * kN + 9, kN + 4, 1}, kN);
  f.rstd = arena.vector(TN_F32, kM);
  check(arena, f);
  tn_backward_args b = backward_of(f.x);
  b.dx = arena.matrix(TN_BF16, {2, 1, kM, 0, kN + 29, 7}, kN);
  b.dresidual = arena.matrix(TN_F32, {3, 2, 3, kN + 2, 2 * kN + 5, 0}, kN);
  check(arena, b);
}

}  // namespace
}  // namespace truenorm::test
