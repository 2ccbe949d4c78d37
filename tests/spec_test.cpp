// src/spec against independent evaluations: conversions over all 16-bit patterns, the emulated fma and square root
// against the hardware's, trees against plain recursion, neutral operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"
#include "support/random.hpp"

namespace truenorm::test {
namespace {

using spec::bits_of;
using spec::float_of;
using Elements = spec::Elements<spec::Scalar>;

// Emulators and sanitizers lower the numbers of random values through TRUENORM_TEST_CASES (4000 is all of them).
std::int64_t scaled(std::int64_t count) {
  const char* cases = std::getenv("TRUENORM_TEST_CASES");
  return cases == nullptr ? count : std::max<std::int64_t>(1000, count * std::atoll(cases) / 4000);
}

// ---- Conversions

struct Format {
  tn_dtype type;
  int precision;      // significant bits
  int smallest;       // the exponent of the unit of subnormals
  double largest;     // finite
  std::uint32_t inf;  // as bits
};
std::ostream& operator<<(std::ostream& out, const Format& f) { return out << tn_dtype_name(f.type); }
constexpr Format kF16{TN_F16, 11, -24, 65504.0, 0x7c00};
constexpr Format kBf16{TN_BF16, 8, -133, 0x1.fep127, 0x7f80};

// The value of a finite 16-bit pattern, from its fields.
double decoded(const Format& f, std::uint32_t magnitude) {
  const int mantissa_bits = f.precision - 1;
  const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
  const std::uint32_t fraction = magnitude & ((1u << mantissa_bits) - 1u);
  if (exponent == 0) return std::ldexp(fraction, f.smallest);
  return std::ldexp(fraction + (1u << mantissa_bits), f.smallest + exponent - 1);
}

// v rounded to the format by integers of its unit, in FP64, where all of this is exact.
double rounded(const Format& f, double v) {
  if (v == 0.0 || std::isinf(v)) return v;
  const int unit = std::max(std::ilogb(v) - f.precision + 1, f.smallest);
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit);
  return std::abs(r) > f.largest ? std::copysign(INFINITY, v) : r;
}

class Spec_Conversion : public testing::TestWithParam<Format> {};

TEST_P(Spec_Conversion, WidensEveryPatternExactlyAndBack) {
  const Format& f = GetParam();
  for (std::uint32_t h = 0; h < 0x10000u; ++h) {
    const float v = widened(f.type, h);
    const std::uint32_t magnitude = h & 0x7fffu;
    if (magnitude > f.inf) {
      ASSERT_TRUE(std::isnan(v)) << h;
      ASSERT_TRUE(is_nan(f.type, narrowed(f.type, v))) << h;
      continue;
    }
    const double expected = magnitude == f.inf ? INFINITY : decoded(f, magnitude);
    ASSERT_EQ(std::abs(static_cast<double>(v)), expected) << h;
    ASSERT_EQ(std::signbit(v), (h & 0x8000u) != 0) << h;
    ASSERT_EQ(narrowed(f.type, v), h);
  }
}

TEST_P(Spec_Conversion, NarrowsTiesAndTheirNeighboursAsFp64Does) {
  const Format& f = GetParam();
  for (std::uint32_t h = 0; h < f.inf; ++h) {
    const double low = decoded(f, h);
    const double high = h + 1 == f.inf ? 2 * low - decoded(f, h - 1) : decoded(f, h + 1);
    const auto tie = static_cast<float>((low + high) / 2);
    for (const float v : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY),
                          std::nextafter(static_cast<float>(low), INFINITY)}) {
      ASSERT_EQ(widened(f.type, narrowed(f.type, v)), rounded(f, v)) << v;
      ASSERT_EQ(narrowed(f.type, -v), narrowed(f.type, v) | 0x8000u) << v;
    }
  }
}

TEST_P(Spec_Conversion, NarrowsRandomValuesAsFp64Does) {
  const Format& f = GetParam();
  Rng rng(1);
  for (std::int64_t i = 0; i < scaled(4'000'000); ++i) {
    const float v = float_of(static_cast<std::uint32_t>(rng.next()));
    const std::uint32_t h = narrowed(f.type, v);
    if (std::isnan(v)) {
      ASSERT_TRUE(is_nan(f.type, h)) << bits_of(v);
    } else {
      ASSERT_EQ(widened(f.type, h), rounded(f, v)) << v;
    }
    ASSERT_EQ(std::signbit(v), (h & 0x8000u) != 0) << v;
  }
}

TEST_P(Spec_Conversion, EveryNanStaysANan) {
  const Format& f = GetParam();
  for (std::uint32_t payload = 1; payload < 0x00800000u; payload = payload < 0x4000u ? payload + 1 : payload * 2 - 1) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const std::uint32_t h = narrowed(f.type, float_of(sign | 0x7f800000u | payload));
      ASSERT_TRUE(is_nan(f.type, h)) << payload;
      ASSERT_EQ(h >> 15, sign >> 31) << payload;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Spec_Conversion, testing::Values(kF16, kBf16), testing::PrintToStringParamName());

TEST(Spec_Types, RoundToIsNarrowThenWiden) {
  EXPECT_EQ(spec::round_to(spec::Type::f32, 0x1.000002p0f), 0x1.000002p0f);
  EXPECT_EQ(spec::round_to(spec::Type::f16, 0x1.003p0f), 0x1.004p0f);
  EXPECT_EQ(spec::round_to(spec::Type::bf16, 0x1.03p0f), 0x1.04p0f);
}

// ---- Arithmetic

bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

void expect_fma(float a, float b, float c) {
  const float expected = std::fma(a, b, c), got = spec::fma_emulated(a, b, c);
  ASSERT_TRUE(same(got, expected)) << std::hexfloat << a << " * " << b << " + " << c << ": " << got << ", not "
                                   << expected;
  ASSERT_TRUE(same(spec::Scalar::fma(a, b, c), expected));
}

TEST(Spec_Fma, RandomPatterns) {
  Rng rng(2);
  for (std::int64_t i = 0; i < scaled(4'000'000); ++i) {
    const std::uint64_t r = rng.next();
    expect_fma(float_of(static_cast<std::uint32_t>(r)), float_of(static_cast<std::uint32_t>(r >> 32)),
               float_of(static_cast<std::uint32_t>(rng.next())));
    if (HasFatalFailure()) return;
  }
}

TEST(Spec_Fma, CancellationAndHalfwayCases) {
  Rng rng(3);
  for (std::int64_t i = 0; i < scaled(2'000'000); ++i) {
    // Few bits now and then, so that products and sums meet halfway points exactly.
    const std::uint32_t mask = ~0u << rng.below(20);
    const auto operand = [&](int reach) {
      const auto e = static_cast<std::uint32_t>(127 + rng.between(-reach, reach));
      return float_of((static_cast<std::uint32_t>(rng.next()) & 0x807fffffu & mask) | e << 23);
    };
    const float a = operand(60), b = operand(60);
    const float p = a * b;
    expect_fma(a, b, -p);
    expect_fma(a, b, std::nextafter(-p, INFINITY));
    // c so far from the product that the one lies about half a unit of the other.
    const int shift = static_cast<int>(rng.between(20, 30));
    const float near_one = operand(0);
    expect_fma(a, b, std::ldexp(near_one, std::ilogb(p) + shift));
    expect_fma(a, b, std::ldexp(near_one, std::ilogb(p) - shift));
    if (HasFatalFailure()) return;
  }
}

TEST(Spec_Fma, SubnormalResults) {
  Rng rng(4);
  for (std::int64_t i = 0; i < scaled(2'000'000); ++i) {
    const float a = std::ldexp(float_of((static_cast<std::uint32_t>(rng.next()) & 0x807fffffu) | 0x3f800000u),
                               static_cast<int>(rng.between(-100, 0)));
    const float b = std::ldexp(float_of((static_cast<std::uint32_t>(rng.next()) & 0x007fffffu) | 0x3f800000u),
                               static_cast<int>(-150 - std::ilogb(a) + rng.between(-3, 25)));
    expect_fma(a, b, float_of(static_cast<std::uint32_t>(rng.next()) & 0x80ffffffu));
    expect_fma(a, b, 0.0f);
    expect_fma(a, b, -0.0f);
    if (HasFatalFailure()) return;
  }
}

TEST(Spec_Fma, SignsOfZeroAndSpecialValues) {
  const float values[] = {0.0f,
                          -0.0f,
                          1.0f,
                          -1.0f,
                          INFINITY,
                          -INFINITY,
                          NAN,
                          std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::max()};
  for (const float a : values) {
    for (const float b : values) {
      for (const float c : values) expect_fma(a, b, c);
    }
  }
}

// All mantissas over two neighbouring exponents are all square roots that there are.
TEST(Spec_Sqrt, EveryMantissa) {
  const std::uint32_t step = static_cast<std::uint32_t>((1 << 24) / scaled(1 << 24));
  for (std::uint32_t b = 0x3f800000u; b < 0x40800000u; b += std::max(1u, step)) {
    ASSERT_EQ(spec::sqrt_emulated(float_of(b)), std::sqrt(float_of(b))) << b;
  }
}

TEST(Spec_Sqrt, AnyPattern) {
  Rng rng(5);
  for (std::int64_t i = 0; i < scaled(1'000'000); ++i) {
    const float v = float_of(static_cast<std::uint32_t>(rng.next()) >> (i % 3 == 0 ? 9 : 0));
    ASSERT_TRUE(same(spec::sqrt_emulated(v), std::sqrt(v))) << bits_of(v);
  }
  for (const float v : {0.0f, -0.0f, INFINITY, -INFINITY, -1.0f, std::numeric_limits<float>::max()}) {
    EXPECT_TRUE(same(spec::sqrt_emulated(v), std::sqrt(v))) << v;
  }
}

// Within 0.51 units of the exact reciprocal root: the IEEE quotient of the IEEE root alone is up to 1.5 away.
TEST(Spec_Rstd, IsCorrectedToAboutHalfAUnit) {
  Rng rng(9);
  double worst = 0;
  for (std::int64_t i = 0; i < scaled(1'000'000); ++i) {
    const float v = float_of(0x01000000u + static_cast<std::uint32_t>(rng.next()) % 0x7e000000u);
    const double exact = 1.0 / std::sqrt(static_cast<double>(v));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(spec::rstd_of(v, 0.0f)) - exact) / unit);
  }
  EXPECT_LT(worst, 0.51);
  EXPECT_EQ(spec::rstd_of(0.0f, 0.0f), INFINITY);
  EXPECT_EQ(spec::rstd_of(INFINITY, 1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(spec::rstd_of(NAN, 1.0f)));
  EXPECT_EQ(spec::rstd_of(0.0f, 4.0f), 0.5f);
}

// ---- Sums

// The published tree as a recursion over values padded with +0 to a power of two, then one +0.
float plain_tree(const std::vector<float>& v, std::size_t first, std::size_t count) {
  if (count == 1) return first < v.size() ? v[first] : 0.0f;
  return plain_tree(v, first, count / 2) + plain_tree(v, first + count / 2, count / 2);
}
float plain_tree(const std::vector<float>& v) {
  std::size_t padded = 1;
  while (padded < v.size()) padded *= 2;
  return plain_tree(v, 0, padded) + 0.0f;
}

TEST(Spec_Tree, EqualsAPlainRecursionForEveryCount) {
  Rng rng(6);
  for (int count = 0; count <= 300; ++count) {
    for (const Fill kind : {Fill::normal, Fill::mixed, Fill::zeros, Fill::subnormal, Fill::special}) {
      std::vector<float> values(static_cast<std::size_t>(count));
      if (count > 0) fill(tn_vector(values.data(), TN_F32, count), rng, kind);
      spec::TreeSum sum;
      for (const float v : values) sum.push(v);
      ASSERT_TRUE(same(sum.finish(), plain_tree(values))) << count;
    }
    spec::TreeSum sum;
    for (int i = 0; i < count; ++i) sum.push(-0.0f);
    ASSERT_EQ(bits_of(sum.finish()), 0u) << count;
  }
}

TEST(Spec_Tree, ABlockIsPairsInATree) {
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    float a[spec::kBlock], b[spec::kBlock];
    fill(tn_vector(a, TN_F32, spec::kBlock), rng, i % 3 == 0 ? Fill::mixed : Fill::normal);
    fill(tn_vector(b, TN_F32, spec::kBlock), rng, Fill::normal);
    std::vector<float> pairs;
    for (int k = 0; k < spec::kBlock; k += 2) pairs.push_back(std::fma(a[k + 1], b[k + 1], a[k] * b[k]));
    ASSERT_TRUE(same(spec::block_sum_of_products(a, b), plain_tree(pairs, 0, pairs.size())));
  }
}

TEST(Spec_Order, StripsArePowersOfTwo) {
  for (std::int64_t n = 1; n < 20000; ++n) {
    const std::int64_t p = spec::strips(n);
    ASSERT_GE(p, 1) << n;
    ASSERT_EQ(p & (p - 1), 0) << n;
  }
  EXPECT_EQ(spec::strips(std::int64_t{1} << 40), spec::strips(5000));
}

// ---- Operands that stand for absent ones

TEST(Spec_Neutral, AbsentOperandsChangeNoBit) {
  Rng rng(8);
  for (std::int64_t i = 0; i < scaled(1'000'000); ++i) {
    const auto draw = [&] { return float_of(static_cast<std::uint32_t>(rng.next())); };
    const float a = draw(), b = draw(), c = draw(), d = draw(), rstd = draw();
    ASSERT_TRUE(same(Elements::residual_sum(a, spec::kNoAddend), a));
    ASSERT_TRUE(same(Elements::output(a, spec::kNoWeight, spec::kNoAddend), a));
    ASSERT_TRUE(same(Elements::output(a, b, spec::kNoAddend), a * b));
    ASSERT_TRUE(same(Elements::grad_rms(a, b, c, d, rstd, spec::kNoAddend), rstd * std::fma(c, d, a * b)));
    ASSERT_TRUE(
        same(Elements::grad_layer(a, b, c, d, 0.5f, rstd, spec::kNoAddend), rstd * (std::fma(c, d, a * b) - 0.5f)));
    ASSERT_TRUE(same(Elements::product(a, b) * spec::kNoWeight, a * b));
    ASSERT_TRUE(same(spec::pair_of_products<spec::Scalar>(a, 1.0f, b, 1.0f), b + a));
  }
  for (const float zero : {0.0f, -0.0f}) {
    EXPECT_TRUE(same(Elements::residual_sum(zero, spec::kNoAddend), zero));
    EXPECT_TRUE(same(Elements::output(zero, spec::kNoWeight, spec::kNoAddend), zero));
    EXPECT_TRUE(same(spec::pair_of_products<spec::Scalar>(zero, 1.0f, zero, 1.0f), zero + zero));
  }
}

// ---- Constant expressions

constexpr bool sums_in_constant_expressions() {
  float a[spec::kBlock] = {3.0f, 4.0f};
  spec::TreeSum sum;
  for (int i = 0; i < 3; ++i) sum.push(spec::block_sum_of_products(a, a));
  return sum.finish() == 75.0f;
}
static_assert(sums_in_constant_expressions());
static_assert(spec::rms_rstd(50.0f, 2.0f, 0.0f) == 0.2f);
static_assert(spec::layer_statistics(3.0f, 2.0f, 10.0f, 2.0f, 0.0f).mean == 4.0f);
static_assert(spec::layer_statistics(3.0f, 2.0f, 10.0f, 2.0f, 0.0f).rstd == 0.5f);
static_assert(spec::minus_slope_of(8.0f, 2.0f, 0.5f) == -1.0f);
static_assert(spec::shift_of(8.0f, 2.0f) == 4.0f);
static_assert(spec::strips(128) == 4096 && spec::strips(129) == 2048 && spec::strips(1024) == 2048);
static_assert(spec::strips(1025) == 256 && spec::strips(2049) == 128 && spec::strips(4097) == 64);
static_assert(spec::widen_f16(spec::narrow_f16(65504.0f)) == 65504.0f);
static_assert(spec::widen_f16(spec::narrow_f16(0x1p-24f)) == 0x1p-24f);
static_assert(spec::widen_bf16(spec::narrow_bf16(1.00390625f)) == 1.0f);
static_assert(spec::round_to(spec::Type::bf16, 1.01171875f) == 1.015625f);
static_assert(Elements::effective_weight(0.00390625f, 1.0f) == 1.00390625f);
static_assert(bits_of(Elements::effective_weight(-0.0f, spec::effective_offset(0.0f))) == 0x80000000u);
static_assert(Elements::output(3.0f, 2.0f, 0.5f) == 6.5f);
static_assert(Elements::grad_rms(1.0f, 2.0f, 3.0f, -0.5f, 4.0f, 0.25f) == 2.25f);
static_assert(Elements::grad_layer(1.0f, 2.0f, 3.0f, -0.5f, 1.0f, 4.0f, 0.25f) == -1.75f);
static_assert(Elements::grad_weight(1.0f, 2.0f, 3.0f) == 7.0f && Elements::grad_bias(1.0f, 2.0f) == 3.0f);
static_assert(Elements::grad_weight_llama(1.0f, 2.0f, 3.0f) == 7.0f);

}  // namespace
}  // namespace truenorm::test
