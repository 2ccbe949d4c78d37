// Faults of published libraries: the offset and the order of casts.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

constexpr std::int64_t kN = 600;

class Cases_OffsetAndCastOrder : public testing::Test {
 protected:
  Arena arena;
  Rng rng{11};

  tn_tensor normal(tn_dtype type, std::int64_t m, std::int64_t n) {
    const tn_tensor t = arena.matrix(type, m, n);
    fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor weights(tn_dtype type, std::int64_t n, float value) {
    const tn_tensor t = arena.vector(type, n);
    for (std::int64_t i = 0; i < n; ++i) set_value(t, 0, i, value);
    return t;
  }

  // Y and dX of `weight` with offset 1 are those of the FP32 weight `acts_as` with offset 0, and not those of `not_as`.
  void expect_acts_as(tn_tensor weight, float acts_as, float not_as) {
    tn_forward_args f = forward_args(TN_RMS_NORM);
    f.x = normal(TN_BF16, 2, kN);
    f.weight = weight;
    f.offset = 1.0f;
    f.y = arena.matrix(TN_F32, 2, kN);
    f.rstd = arena.vector(TN_F32, 2);
    check(arena, f);
    tn_forward_args as = f;
    as.offset = 0.0f;
    as.weight = weights(TN_F32, kN, acts_as);
    expect_bits(f, model_forward(as));
    as.weight = weights(TN_F32, kN, not_as);
    EXPECT_FALSE(equal_bits(f.y, model_forward(as).y));

    tn_backward_args b = backward_args(TN_RMS_NORM);
    b.dy = normal(TN_BF16, 2, kN);
    b.s = f.x;
    b.rstd = f.rstd;
    b.weight = weight;
    b.offset = 1.0f;
    b.dx = arena.matrix(TN_F32, 2, kN);
    check(arena, b);
    tn_backward_args b_as = b;
    b_as.offset = 0.0f;
    b_as.weight = weights(TN_F32, kN, acts_as);
    expect_bits(b, model_backward(b_as));
    b_as.weight = weights(TN_F32, kN, not_as);
    EXPECT_FALSE(equal_bits(b.dx, model_backward(b_as).dx));
  }
};

TEST_F(Cases_OffsetAndCastOrder, Bf16WeightSmallerThanHalfUlpOfOne) {
  expect_acts_as(weights(TN_BF16, kN, 0.00390625f), 1.00390625f, 1.0f);
}

TEST_F(Cases_OffsetAndCastOrder, Bf16WeightWhoseSumNeedsMoreBits) {
  expect_acts_as(weights(TN_BF16, kN, 15.8125f), 16.8125f, 16.75f);
}

TEST_F(Cases_OffsetAndCastOrder, SmallWeightDoesNotVanish) {
  const tn_tensor weight = weights(TN_BF16, kN, 0.003f);
  expect_acts_as(weight, value_at(weight, 0, 0) + 1.0f, 1.0f);
}

TEST_F(Cases_OffsetAndCastOrder, ZeroWeightUnderOffsetOneIsTheNormalisedValue) {
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = normal(TN_F32, 2, kN);
  f.weight = weights(TN_BF16, kN, 0.0f);
  f.offset = 1.0f;
  f.y = arena.matrix(TN_F32, 2, kN);
  f.rstd = arena.vector(TN_F32, 2);
  check(arena, f);
  for (std::int64_t r = 0; r < 2; ++r) {
    for (std::int64_t c = 0; c < kN; ++c) ASSERT_EQ(value_at(f.y, r, c), value_at(f.x, r, c) * value_at(f.rstd, 0, r));
  }
}

// An offset of zero, of either sign, is none: a weight of -0 keeps its sign, on every path.
TEST_F(Cases_OffsetAndCastOrder, NegativeZeroWeightWithoutOffset) {
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = normal(TN_F32, 2, kN);
  f.weight = weights(TN_BF16, kN, -0.0f);
  f.y = arena.matrix(TN_F32, 2, kN);
  for (const float offset : {0.0f, -0.0f}) {
    f.offset = offset;
    check(arena, f);
    for (std::int64_t c = 0; c < kN; ++c) {
      // x * -0; where that is +0, adding the absent bias, -0, leaves it.
      ASSERT_EQ(std::signbit(value_at(f.y, 0, c)), !std::signbit(value_at(f.x, 0, c)));
    }
  }
}

TEST_F(Cases_OffsetAndCastOrder, RoundingModeDoesNotDependOnTheSize) {
  for (const std::int64_t n : {3072, 16384}) {
    tn_forward_args f = forward_args(TN_RMS_NORM);
    f.x = normal(TN_BF16, 2, n);
    f.weight = arena.vector(TN_F32, n);
    fill(f.weight, rng, Fill::normal);
    f.y = arena.matrix(TN_BF16, 2, n);
    check(arena, f);
    const Bits once = read_bits(f.y);
    f.rounding = TN_ROUND_LLAMA;
    check(arena, f);
    EXPECT_FALSE(equal_bits(f.y, once)) << "the two modes round differently at N = " << n;

    // Llama rounding, written out from the FP32 path: what is rounded once there is x * rstd alone.
    tn_forward_args xhat = forward_args(TN_RMS_NORM);
    xhat.x = f.x;
    xhat.y = arena.matrix(TN_BF16, 2, n);
    check(arena, xhat);
    for (std::int64_t r = 0; r < 2; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        const float expected = value_at(xhat.y, r, c) * value_at(f.weight, 0, c);
        ASSERT_EQ(bits_at(f.y, r, c), narrowed(TN_BF16, expected)) << n;
      }
    }
  }
}

TEST_F(Cases_OffsetAndCastOrder, NearlyCancellingResidualIsRoundedOnceAndNormalisedAsStored) {
  constexpr std::int64_t n = 4096;
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = normal(TN_BF16, 3, n);
  f.residual = arena.matrix(TN_BF16, 3, n);
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      const float near = value_at(f.x, r, c) * (1.0f + 0.01f * static_cast<float>(rng.normal()));
      set_value(f.residual, r, c, -near + static_cast<float>(rng.normal() * 1e-4));
    }
  }
  f.weight = arena.vector(TN_BF16, n);
  fill(f.weight, rng, Fill::normal);
  f.y = arena.matrix(TN_BF16, 3, n);
  f.residual_out = arena.matrix(TN_BF16, 3, n);
  f.rstd = arena.vector(TN_F32, 3);
  check(arena, f);
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      const double exact = static_cast<double>(value_at(f.x, r, c)) + static_cast<double>(value_at(f.residual, r, c));
      ASSERT_EQ(bits_at(f.residual_out, r, c), narrowed(TN_BF16, static_cast<float>(exact)));
    }
  }
  // The plain norm of S, and the fused one that does not keep S.
  const ForwardBits fused = {read_bits(f.y), read_bits(f.residual_out), {}, read_bits(f.rstd)};
  tn_forward_args plain = f;
  plain.x = arena.matrix(TN_BF16, 3, n);
  write_bits(plain.x, fused.residual_out);
  plain.residual = plain.residual_out = {};
  check(arena, plain);
  expect_bits(plain, fused);
  f.residual_out = {};
  check(arena, f);
  expect_bits(f, fused);
}

TEST_F(Cases_OffsetAndCastOrder, SameSizeWithOffsetsZeroOneZeroFromTwoThreads) {
  const auto calls = [](std::uint64_t seed) {
    Rng own(seed);
    Arena memory;
    tn_forward_args f = forward_args(TN_RMS_NORM);
    f.x = memory.matrix(TN_BF16, 2, kN);
    f.weight = memory.vector(TN_BF16, kN);
    f.y = memory.matrix(TN_BF16, 2, kN);
    fill(f.x, own, Fill::normal);
    fill(f.weight, own, Fill::normal);
    for (const float offset : {0.0f, 1.0f, 0.0f}) {
      f.offset = offset;
      check(memory, f);
    }
  };
  std::thread other(calls, 1);
  calls(2);
  other.join();
}

}  // namespace
}  // namespace truenorm::test
