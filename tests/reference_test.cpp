// The oracle against facts that do not come from it: the formats bit by bit, operations worked out by hand, gradients
// by finite differences. reference_measures_test.cpp has the measures.
#include <gtest/gtest.h>
#include <truenorm/truenorm.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "reference/backward.hpp"
#include "reference/format.hpp"
#include "reference/forward.hpp"
#include "reference/tensor.hpp"

namespace truenorm::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- Formats ----

// The value of an FP16 pattern, from IEEE 754's definition; of a bfloat16 pattern, from the FP32 hardware.
double value_by_definition(tn_dtype dtype, uint32_t bits) {
  if (dtype == TN_BF16) return static_cast<double>(std::bit_cast<float>(bits << 16));
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const auto exponent = static_cast<int>((bits >> 10) & 31U);
  const double fraction = bits & 1023U;
  if (exponent == 31) return fraction == 0 ? sign * kInf : kNan;
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

class SixteenBits : public testing::TestWithParam<tn_dtype> {
 protected:
  tn_dtype dtype() const { return GetParam(); }
  uint32_t infinity() const { return dtype() == TN_F16 ? 0x7C00U : 0x7F80U; }
  // What the pattern after the largest finite one would stand for, were it a number.
  double beyond(uint32_t bits) const {
    return bits == infinity() ? std::ldexp(1.0, dtype() == TN_F16 ? 16 : 128) : decode(dtype(), bits);
  }
};

TEST_P(SixteenBits, EveryPatternDecodesAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = value_by_definition(dtype(), bits);
    const double value = decode(dtype(), bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(decode(dtype(), encode(dtype(), value)))) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(expected)) << bits;
    ASSERT_EQ(encode(dtype(), value), bits);
    ASSERT_EQ(std::bit_cast<uint64_t>(round_to(format_of(dtype()), value)), std::bit_cast<uint64_t>(value)) << bits;
  }
}

TEST_P(SixteenBits, EveryTieGoesToEvenAndItsNeighboursToTheNearer) {
  const uint32_t sign = 0x8000;
  for (uint32_t bits = 0; bits < infinity(); ++bits) {
    const double middle = (beyond(bits) + beyond(bits + 1)) / 2;  // exact in FP64
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(encode(dtype(), middle), even) << bits;
    ASSERT_EQ(encode(dtype(), std::nextafter(middle, 0.0)), bits);
    ASSERT_EQ(encode(dtype(), std::nextafter(middle, kInf)), bits + 1);
    ASSERT_EQ(encode(dtype(), -middle), sign | even) << bits;
    ASSERT_EQ(encode(dtype(), -std::nextafter(middle, 0.0)), sign | bits);
    ASSERT_EQ(encode(dtype(), -std::nextafter(middle, kInf)), sign | (bits + 1));
  }
}

TEST_P(SixteenBits, HugeValuesOverflowAndTinyOnesVanish) {
  for (const double huge : {1e39, 1e300, std::numeric_limits<double>::max(), kInf}) {
    EXPECT_EQ(encode(dtype(), huge), infinity());
    EXPECT_EQ(encode(dtype(), -huge), 0x8000U | infinity());
  }
  EXPECT_EQ(encode(dtype(), 1e-60), 0U);
  EXPECT_EQ(encode(dtype(), -std::numeric_limits<double>::denorm_min()), 0x8000U);
}

TEST_P(SixteenBits, DistanceCountsPatterns) {
  const Format& format = format_of(dtype());
  for (uint32_t bits = 0; bits + 3 <= infinity(); bits += 7) {
    ASSERT_EQ(ulp_distance(format, decode(dtype(), bits), decode(dtype(), bits + 3)), 3) << bits;
  }
  EXPECT_EQ(ulp_distance(format, decode(dtype(), 2), -decode(dtype(), 3)), 5);
  EXPECT_EQ(ulp_distance(format, 0.0, -0.0), 0);
  EXPECT_EQ(ulp_distance(format, kInf, decode(dtype(), infinity() - 1)), 1);
}

INSTANTIATE_TEST_SUITE_P(Types, SixteenBits, testing::Values(TN_F16, TN_BF16),
                         [](const auto& test) { return test.param == TN_F16 ? "F16" : "BF16"; });

TEST(Format, Fp32MatchesTheHardware) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    // Any sign and fraction, exponents from well below FP32's subnormals to beyond its overflow.
    const uint64_t exponent = 1023 - 160 + random() % 300;
    const double value = std::bit_cast<double>((random() & 0x800FFFFFFFFFFFFFU) | (exponent << 52));
    const auto expected = static_cast<float>(value);
    ASSERT_EQ(encode(TN_F32, value), std::bit_cast<uint32_t>(expected)) << value;
    ASSERT_EQ(round_to(kF32, value), static_cast<double>(expected)) << value;
    if (std::isfinite(expected)) {
      ASSERT_EQ(decode(TN_F32, std::bit_cast<uint32_t>(expected)), static_cast<double>(expected));
    }
  }
}

TEST(Format, RoundsOnceNotThroughFp32) {
  const double just_above_a_tie = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(round_to(kBf16, just_above_a_tie), 1 + 0x1p-7);
  EXPECT_EQ(round_to(kBf16, static_cast<double>(static_cast<float>(just_above_a_tie))), 1.0);
}

TEST(Format, RefusesOtherTypes) { EXPECT_THROW(format_of(TN_DTYPE_NONE), std::invalid_argument); }

// ---- Operations by hand ----

// A dense matrix or vector with memory of its own.
struct Owned {
  std::vector<uint32_t> memory;
  tn_tensor view{};

  static Owned matrix(tn_dtype dtype, int64_t rows, int64_t n, const std::vector<double>& values) {
    Owned owned{std::vector<uint32_t>(values.size() + 1), {}};
    owned.view = tn_matrix(owned.memory.data(), dtype, rows, n);
    for (int64_t row = 0; row < rows; ++row) store_row(owned.view, row, values.data() + row * n);
    return owned;
  }
  static Owned vector(tn_dtype dtype, const std::vector<double>& values) {
    Owned owned = matrix(dtype, 1, static_cast<int64_t>(values.size()), values);
    owned.view = tn_vector(owned.memory.data(), dtype, static_cast<int64_t>(values.size()));
    return owned;
  }
};

tn_forward_args forward_args(tn_op op, const Owned& x, float eps = 0) {
  tn_forward_args args{};
  args.struct_size = sizeof(args);
  args.op = op;
  args.eps = eps;
  args.x = x.view;
  return args;
}

void expect_values(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14 * std::fabs(expected[i])) << i;
}

TEST(Tensor, ReadsAndWritesTwoLevelsOfStrides) {
  std::vector<float> memory(100);
  std::iota(memory.begin(), memory.end(), 0.0F);
  const tn_tensor tensor{memory.data(), TN_F32, 3, {2, 3, 4}, {40, 5, 1}};
  ASSERT_EQ(rows(tensor), 6);
  ASSERT_EQ(columns(tensor), 4);
  std::vector<double> row(4);
  load_row(tensor, 4, row.data());  // [1, 1, :]
  EXPECT_EQ(row, (std::vector<double>{45, 46, 47, 48}));
  store_row(tensor, 5, std::vector<double>{-1, -2, -3, -4}.data());
  EXPECT_EQ(memory[50], -1);
  EXPECT_EQ(memory[53], -4);
  EXPECT_EQ(memory[54], 54);
}

TEST(ForwardOracle, RmsNormWithWeightOffsetAndBias) {
  const Owned x = Owned::matrix(TN_F16, 2, 4, {3, -3, 3, -3, 0, 0, 0, 0});
  const Owned weight = Owned::vector(TN_F32, {0, 1, -1, 0.5});
  const Owned bias = Owned::vector(TN_BF16, {0, 0, 8, 1});
  tn_forward_args args = forward_args(TN_RMS_NORM, x, 7.0F);  // 9 + 7 = 4^2
  args.weight = weight.view;
  args.bias = bias.view;
  args.offset = 1;
  const ForwardResult result = forward(args);
  expect_values(result.y, {0.75, -1.5, 8, -0.125, 0, 0, 8, 1});
  expect_values(result.rstd, {0.25, 1 / std::sqrt(7)});
  args.weight = {};  // the offset then has no effect
  expect_values(forward(args).y, {0.75, -0.75, 8.75, 0.25, 0, 0, 8, 1});
}

TEST(ForwardOracle, LayerNorm) {
  const Owned x = Owned::matrix(TN_F32, 2, 2, {1, 3, 2001, 1999});
  tn_forward_args args = forward_args(TN_LAYER_NORM, x, 3.0F);
  const ForwardResult result = forward(args);
  expect_values(result.y, {-0.5, 0.5, 0.5, -0.5});
  expect_values(result.mean, {2, 2000});
  expect_values(result.rstd, {0.5, 0.5});
}

TEST(ForwardOracle, OffsetIsAddedToTheWidenedWeight) {
  const Owned x = Owned::matrix(TN_BF16, 1, 2, {1, -1});
  const Owned weight = Owned::vector(TN_BF16, {0.00390625, 15.8125});
  tn_forward_args args = forward_args(TN_RMS_NORM, x);
  args.weight = weight.view;
  args.offset = 1;
  expect_values(forward(args).y, {1.00390625, -16.8125});
}

TEST(ForwardOracle, TheResidualSumIsRoundedToItsOwnType) {
  const Owned x = Owned::matrix(TN_F32, 1, 3, {1, 1, 1});
  const Owned residual = Owned::matrix(TN_F32, 1, 3, {0x1p-24, 0x1p-9, 0x1p-8 + 0x1p-30});
  tn_forward_args args = forward_args(TN_RMS_NORM, x);
  args.residual = residual.view;
  // FP32 first: 1 + 2^-24 is a tie, and the last one loses its 2^-30.
  EXPECT_EQ(forward(args).s, (std::vector<double>{1, 1 + 0x1p-9, 1 + 0x1p-8}));
  const Owned residual_out = Owned::matrix(TN_BF16, 1, 3, {0, 0, 0});
  args.residual_out = residual_out.view;
  const ForwardResult result = forward(args);
  EXPECT_EQ(result.s, (std::vector<double>{1, 1, 1}));  // the last is a tie only because FP32 came first
  expect_values(result.y, {1, 1, 1});
}

TEST(ForwardOracle, LlamaRoundsXhatToTheTypeOfX) {
  const Owned weight = Owned::vector(TN_F32, {1, 3, -1});
  const std::vector<double> values{1, 2, 2};  // xhat = {1, 2, 2} / sqrt(3) = {0.57735, 1.1547, 1.1547}
  const Owned x = Owned::matrix(TN_BF16, 1, 3, values);
  tn_forward_args args = forward_args(TN_RMS_NORM, x);
  args.weight = weight.view;
  args.rounding = TN_ROUND_LLAMA;
  expect_values(forward(args).y, {0.578125, 3 * 1.15625, -1.15625});
  const Owned wide = Owned::matrix(TN_F32, 1, 3, values);
  args.x = wide.view;
  expect_values(forward(args).y, {1 / std::sqrt(3), 6 / std::sqrt(3), -2 / std::sqrt(3)});
}

TEST(ForwardOracle, LlamaAllowsBothNeighboursOnlyAtABoundary) {
  const double boundary = 1 + 0x1p-8;
  const RoundedXhat at = round_xhat(kBf16, boundary + 0x1p-40);
  EXPECT_EQ(at.value, 1 + 0x1p-7);
  EXPECT_EQ(at.other, 1.0);
  const RoundedXhat below = round_xhat(kBf16, -boundary + 0x1p-23);
  EXPECT_EQ(below.value, -1.0);
  EXPECT_EQ(below.other, -(1 + 0x1p-7));
  const RoundedXhat away = round_xhat(kBf16, boundary + 4 * 0x1p-23);
  EXPECT_EQ(away.value, 1 + 0x1p-7);
  EXPECT_EQ(away.other, away.value);
}

struct Gradients {
  Owned s, dy;
  tn_backward_args args{};

  Gradients(tn_op op, int64_t m, int64_t n, const std::vector<double>& s_values, const std::vector<double>& dy_values)
      : s(Owned::matrix(TN_F32, m, n, s_values)), dy(Owned::matrix(TN_F32, m, n, dy_values)) {
    args.struct_size = sizeof(args);
    args.op = op;
    args.s = s.view;
    args.dy = dy.view;
  }
};

TEST(BackwardOracle, RmsNorm) {
  Gradients g(TN_RMS_NORM, 1, 2, {3, -3}, {1, 2});
  const std::vector<double> rstd{1.0 / 3};
  // xhat = {1, -1}, sum(g * xhat) / N = -1/2.
  const BackwardResult plain = backward(g.args, {}, rstd);
  expect_values(plain.ds_total, {0.5, 0.5});
  expect_values(plain.sums.dweight, {1, -2});
  expect_values(plain.sums.dbias, {1, 2});
  const Owned ds = Owned::matrix(TN_BF16, 1, 2, {1, -4});
  const Owned weight = Owned::vector(TN_BF16, {0.00390625, 15.8125});
  g.args.ds = ds.view;
  g.args.weight = weight.view;
  g.args.offset = 1;
  // g = {1.00390625, 33.625}, sum(g * xhat) / N = -16.310546875.
  expect_values(backward(g.args, {}, rstd).ds_total,
                {(1.00390625 + 16.310546875) / 3 + 1, (33.625 - 16.310546875) / 3 - 4});
}

TEST(BackwardOracle, LayerNormFromTheSavedStatistics) {
  Gradients g(TN_LAYER_NORM, 1, 2, {1, 3}, {1, 2});
  const Owned mean = Owned::vector(TN_F32, {2});
  const Owned rstd = Owned::vector(TN_F32, {0.5});
  const Owned weight = Owned::vector(TN_F32, {2, 2});
  g.args.mean = mean.view;
  g.args.rstd = rstd.view;
  g.args.weight = weight.view;
  const BackwardResult result = backward(g.args);
  expect_values(result.ds_total, {-0.375, 0.375});
  expect_values(result.sums.dweight, {-0.5, 1});
}

TEST(BackwardOracle, LlamaSumsTheRoundedXhat) {
  Gradients g(TN_RMS_NORM, 2, 1, {1, 1}, {1, 4});
  g.args.rounding = TN_ROUND_LLAMA;
  g.args.x_dtype = TN_BF16;
  // The second row's xhat lies at the boundary between 1 and 1 + 2^-7.
  const std::vector<double> rstd{0.57735, 1 + 0x1p-8 + 0x1p-40};
  const BackwardResult result = backward(g.args, {}, rstd);
  expect_values(result.sums.dweight, {0.578125 + 4 * (1 + 0x1p-7)});
  expect_values(result.sums.dweight_slack, {4 * 0x1p-7});
  g.args.x_dtype = TN_DTYPE_NONE;  // s's type, FP32: nothing is rounded
  expect_values(backward(g.args, {}, rstd).sums.dweight, {0.57735 + 4 * rstd[1]});
}

TEST(BackwardOracle, WithoutDyAndWithoutRows) {
  const Owned ds = Owned::matrix(TN_F16, 1, 2, {1.5, -2});
  tn_backward_args args{};
  args.struct_size = sizeof(args);
  args.op = TN_RMS_NORM;
  args.ds = ds.view;
  const BackwardResult result = backward(args);
  expect_values(result.ds_total, {1.5, -2});
  expect_values(result.sums.dweight, {0, 0});
  args.ds.shape[0] = 0;
  EXPECT_TRUE(backward(args).ds_total.empty());
  expect_values(backward(args).sums.dbias, {0, 0});
}

// d(sum of dy * y) / d(one input), by central differences of the forward oracle.
TEST(BackwardOracle, AgreesWithFiniteDifferences) {
  constexpr int64_t kM = 3;
  constexpr int64_t kN = 5;
  constexpr double kStep = 0x1p-12;
  std::mt19937_64 random(3);
  const auto draw = [&](size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = static_cast<double>(random() % 4096) / 1024 - 2;
    return values;
  };
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    const std::vector<double> x = draw(kM * kN);
    const std::vector<double> w = draw(kN);
    Gradients g(op, kM, kN, x, draw(kM * kN));
    const Owned weight = Owned::vector(TN_F32, w);
    g.args.weight = weight.view;
    g.args.offset = 1;
    const auto loss = [&](const std::vector<double>& x_values, const std::vector<double>& w_values) {
      const Owned moved_x = Owned::matrix(TN_F32, kM, kN, x_values);
      const Owned moved_w = Owned::vector(TN_F32, w_values);
      tn_forward_args args = forward_args(op, moved_x, 0.125F);
      args.weight = moved_w.view;
      args.offset = 1;
      const ForwardResult result = forward(args);
      std::vector<double> dy(kM * kN);
      for (int64_t m = 0; m < kM; ++m) load_row(g.args.dy, m, dy.data() + m * kN);
      return std::inner_product(dy.begin(), dy.end(), result.y.begin(), 0.0);
    };
    const auto slope = [&](std::vector<double> x_values, std::vector<double> w_values, bool of_x, size_t i) {
      std::vector<double>& moved = of_x ? x_values : w_values;
      moved[i] += kStep;
      const double up = loss(x_values, w_values);
      moved[i] -= 2 * kStep;
      return (up - loss(x_values, w_values)) / (2 * kStep);
    };
    const Owned plain_x = Owned::matrix(TN_F32, kM, kN, x);
    const ForwardResult exact = forward(forward_args(op, plain_x, 0.125F));
    const BackwardResult result = backward(g.args, exact.mean, exact.rstd);
    for (size_t i = 0; i < kM * kN; ++i) EXPECT_NEAR(result.ds_total[i], slope(x, w, true, i), 1e-5) << op << " " << i;
    for (size_t j = 0; j < kN; ++j) EXPECT_NEAR(result.sums.dweight[j], slope(x, w, false, j), 1e-8) << op << " " << j;
  }
}

}  // namespace
}  // namespace truenorm::reference
