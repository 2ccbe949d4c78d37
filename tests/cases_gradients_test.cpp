// Faults of published libraries: which gradients exist, and what may be touched.
#include <gtest/gtest.h>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

constexpr std::int64_t kM = 70, kN = 4100;  // two rows in some strips

class Cases_Gradients : public testing::Test {
 protected:
  Arena arena;
  Rng rng{13};
  std::int64_t m = 9, n = 513;

  tn_tensor normal(tn_dtype type) {
    const tn_tensor t = arena.matrix(type, m, n);
    fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor normal_vector(tn_dtype type) {
    const tn_tensor t = arena.vector(type, n);
    fill(t, rng, Fill::normal);
    return t;
  }

  // Everything but outputs, of a norm of BF16.
  tn_backward_args inputs(tn_op op) {
    tn_forward_args f = forward_args(op);
    f.x = normal(TN_BF16);
    f.rstd = arena.vector(TN_F32, m);
    if (op == TN_LAYER_NORM) f.mean = arena.vector(TN_F32, m);
    check(arena, f);
    tn_backward_args b = backward_args(op);
    b.dy = normal(TN_BF16);
    b.s = f.x;
    b.mean = f.mean;
    b.rstd = f.rstd;
    b.weight = normal_vector(TN_F32);
    return b;
  }
};

TEST_F(Cases_Gradients, OneDyInTwoBackwardCalls) {
  tn_backward_args first = inputs(TN_RMS_NORM), second = inputs(TN_LAYER_NORM);
  second.dy = first.dy;
  first.dx = arena.matrix(TN_BF16, m, n);
  second.dx = arena.matrix(TN_BF16, m, n);
  check(arena, first);  // which checks that dy has not changed
  check(arena, second);
}

TEST_F(Cases_Gradients, LossUsesOnlyY) {
  tn_backward_args b = inputs(TN_RMS_NORM);
  b.dx = arena.matrix(TN_BF16, m, n);
  b.dresidual = arena.matrix(TN_F32, m, n);
  b.dweight = arena.vector(TN_F32, n);
  check(arena, b);
}

TEST_F(Cases_Gradients, LossUsesOnlySPassesItThroughExactly) {
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    tn_backward_args b = backward_args(op);
    b.ds = normal(TN_BF16);
    b.weight = normal_vector(TN_BF16);
    b.dx = arena.matrix(TN_BF16, m, n);
    b.dresidual = arena.matrix(TN_F32, m, n);
    b.dweight = arena.vector(TN_BF16, n);
    b.dbias = arena.vector(TN_F32, n);
    check(arena, b);
    EXPECT_TRUE(equal_bits(b.dx, read_bits(b.ds)));
    EXPECT_TRUE(equal_bits(b.dweight, Bits(static_cast<std::size_t>(n), 0u)));
    EXPECT_TRUE(equal_bits(b.dbias, Bits(static_cast<std::size_t>(n), 0u)));
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) ASSERT_EQ(value_at(b.dresidual, r, c), value_at(b.ds, r, c));
    }
  }
}

TEST_F(Cases_Gradients, LossUsesYAndS) {
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    tn_backward_args b = inputs(op);
    b.ds = normal(TN_F32);
    b.dx = arena.matrix(TN_BF16, m, n);
    b.dresidual = arena.matrix(TN_F32, m, n);
    b.dweight = arena.vector(TN_F32, n);
    b.dbias = arena.vector(TN_F32, n);
    check(arena, b);
  }
}

TEST_F(Cases_Gradients, OnlyTheResidualRequiresAGradient) {
  tn_backward_args b = inputs(TN_RMS_NORM);
  b.ds = normal(TN_BF16);
  b.dresidual = arena.matrix(TN_F32, m, n);
  check(arena, b);
}

TEST_F(Cases_Gradients, FrozenWeightTakesNoWorkspace) {
  tn_backward_args b = inputs(TN_RMS_NORM);
  b.dx = arena.matrix(TN_BF16, m, n);
  tn_workspace workspace{nullptr, 1, nullptr, 1};
  ASSERT_EQ(tn_backward_workspace(nullptr, &b, &workspace, nullptr), TN_OK);
  EXPECT_EQ(workspace.size, 0u);
  EXPECT_EQ(workspace.counters_size, 0u);
  arena.allow(b.dx);
  arena.arm();
  EXPECT_EQ(tn_backward(nullptr, &b, nullptr, nullptr), TN_OK);
  EXPECT_TRUE(arena.intact());
  expect_bits(b, model_backward(b));
}

TEST_F(Cases_Gradients, DxAndDresidualLieApart) {
  tn_backward_args b = inputs(TN_RMS_NORM);
  b.dx = b.dresidual = arena.matrix(TN_BF16, m, n);
  tn_error error;
  EXPECT_EQ(tn_backward(nullptr, &b, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(error.message), "dx: shares memory with dresidual; needs memory of its own");
}

TEST_F(Cases_Gradients, EveryCombinationOfWeightBiasAndDs) {
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    for (int with = 0; with < 16; ++with) {  // bits: weight, bias, ds, dy
      const bool weight = with & 1, bias = with & 2, ds = with & 4, dy = with & 8;
      if (!dy && !ds) continue;
      tn_backward_args b = inputs(op);
      const tn_tensor kept = b.weight;
      if (!weight) b.weight = {};
      if (ds) b.ds = normal(TN_BF16);
      if (!dy) b.dy = b.s = b.mean = b.rstd = {};
      b.dx = arena.matrix(TN_BF16, m, n);
      if (weight) b.dweight = arena.vector(TN_F32, n);
      if (bias) b.dbias = arena.vector(TN_F32, n);
      check(arena, b);

      tn_forward_args f = forward_args(op);
      f.x = normal(TN_BF16);
      if (weight) f.weight = kept;
      if (bias) f.bias = normal_vector(TN_BF16);
      if (ds) f.residual = normal(TN_BF16);
      f.y = arena.matrix(TN_BF16, m, n);
      check(arena, f);
    }
  }
}

TEST_F(Cases_Gradients, EachOutputAlone) {
  m = kM;
  n = kN;
  tn_backward_args all = inputs(TN_LAYER_NORM);
  all.dx = arena.matrix(TN_BF16, m, n);
  all.dresidual = arena.matrix(TN_F32, m, n);
  all.dweight = arena.vector(TN_F32, n);
  all.dbias = arena.vector(TN_F32, n);
  check(arena, all);
  const BackwardBits expected = model_backward(all);
  for (int only = 0; only < 4; ++only) {
    tn_backward_args one = all;
    tn_tensor* outputs[] = {&one.dx, &one.dresidual, &one.dweight, &one.dbias};
    for (int k = 0; k < 4; ++k) {
      if (k != only) *outputs[k] = {};
    }
    arena.arm();
    backward(one);
    EXPECT_TRUE(arena.intact());
    expect_bits(one, expected);
  }
}

// Products that underflow to -0 in every row: the strips without rows are +0, and so is the sum.
TEST_F(Cases_Gradients, UnderflowToNegativeZeroInFewRows) {
  m = 1;
  n = 40;
  for (const tn_rounding rounding : {TN_ROUND_ONCE, TN_ROUND_LLAMA}) {
    tn_backward_args b = backward_args(TN_RMS_NORM);
    b.rounding = rounding;
    b.x_dtype = TN_BF16;
    b.dy = arena.matrix(TN_F32, m, n);
    b.s = arena.matrix(TN_F32, m, n);
    b.rstd = arena.vector(TN_F32, m);
    b.weight = normal_vector(TN_F32);
    b.dweight = arena.vector(TN_F32, n);
    b.dbias = arena.vector(TN_F32, n);
    for (std::int64_t c = 0; c < n; ++c) {
      set_value(b.dy, 0, c, -0x1p-80f);
      set_value(b.s, 0, c, 0x1p-20f);
    }
    set_value(b.rstd, 0, 0, 0x1p-60f);
    check(arena, b);
    EXPECT_TRUE(equal_bits(b.dweight, Bits(static_cast<std::size_t>(n), 0u)));
  }
}

TEST_F(Cases_Gradients, NoRowsGiveZeroWeightGradients) {
  m = 0;
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    tn_backward_args b = inputs(op);
    b.dx = arena.matrix(TN_BF16, m, n);
    b.dweight = arena.vector(TN_BF16, n);
    b.dbias = arena.vector(TN_F32, n);
    check(arena, b);
    EXPECT_TRUE(equal_bits(b.dweight, Bits(static_cast<std::size_t>(n), 0u)));
    EXPECT_TRUE(equal_bits(b.dbias, Bits(static_cast<std::size_t>(n), 0u)));
  }
}

}  // namespace
}  // namespace truenorm::test
