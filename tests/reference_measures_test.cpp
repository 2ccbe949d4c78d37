// The error measures against planted faults, so that none of them passes whatever it is shown.
#include <gtest/gtest.h>
#include <truenorm/truenorm.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/backward.hpp"
#include "reference/format.hpp"
#include "reference/forward.hpp"
#include "reference/measures.hpp"
#include "reference/tensor.hpp"

namespace truenorm::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kCount = 400'000;

std::vector<double> random_values(size_t count, uint64_t seed = 5) {
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  // In [0.5, 4) with 53 random bits and either sign.
  for (double& value : values)
    value = (0.5 + 3.5 * static_cast<double>(random() >> 11) * 0x1p-53) * (random() % 2 == 0 ? 1 : -1);
  return values;
}

std::vector<double> rounded(const Format& format, std::vector<double> values) {
  for (double& value : values) value = round_to(format, value);
  return values;
}

Accuracy compare(const Format& format, const std::vector<double>& ours, const std::vector<double>& exact,
                 double scale = 4, const std::vector<double>* other = nullptr) {
  Accuracy accuracy;
  const std::vector<double> scales(exact.size(), scale);
  compare_row(format, ours.data(), exact.data(), other == nullptr ? nullptr : other->data(), scales.data(),
              static_cast<int64_t>(exact.size()), accuracy);
  return accuracy;
}

// The next value of the format after `value`, away from zero.
double next(const Format& format, double value) { return value + std::copysign(spacing(format, value), value); }

TEST(Measures, CorrectRoundingsPassInEveryType) {
  const std::vector<double> exact = random_values(kCount);
  for (const tn_dtype dtype : {TN_F32, TN_F16, TN_BF16}) {
    const Format& format = format_of(dtype);
    const Accuracy accuracy = compare(format, rounded(format, exact), exact);
    EXPECT_EQ(accuracy.correct, static_cast<int64_t>(kCount));
    EXPECT_EQ(accuracy.worst_ulp, 0);
    EXPECT_EQ(accuracy.worst_units, 0);
    EXPECT_EQ(accuracy.relative_l2(), accuracy.ideal_relative_l2());
    EXPECT_EQ(accuracy.relative_l2_from_ideal(), 0);
    const Verdict verdict = judge(dtype, accuracy);
    EXPECT_TRUE(verdict.passed());
    EXPECT_EQ(verdict.share_applies, dtype != TN_F32);
  }
}

// Exact values a quarter of an FP32 unit above a tie, so that only the share can tell a wrong choice.
TEST(Measures, TheShareCountsWrongChoicesAtTies) {
  struct Case {
    tn_dtype dtype;
    size_t one_wrong_in;
    bool passes;
  };
  for (const Case c : {Case{TN_BF16, 9'000, false}, Case{TN_BF16, 11'000, true}, Case{TN_F16, 4'500, false},
                       Case{TN_F16, 5'500, true}}) {
    const Format& format = format_of(c.dtype);
    std::vector<double> exact = rounded(format, random_values(kCount));
    std::vector<double> ours = exact;
    for (size_t i = 0; i < kCount; ++i) {
      const double up = next(format, exact[i]);
      const double middle = (exact[i] + up) / 2;
      exact[i] = middle + std::copysign(0x1p-25, middle);
      if (i % c.one_wrong_in != 0) ours[i] = up;
    }
    const Accuracy accuracy = compare(format, ours, exact, 1);
    const Verdict verdict = judge(c.dtype, accuracy);
    EXPECT_TRUE(verdict.worst) << accuracy.worst_units;
    EXPECT_EQ(verdict.share, c.passes) << c.one_wrong_in << " " << accuracy.correct_share();
    EXPECT_EQ(accuracy.worst_ulp, 1);
  }
}

TEST(Measures, FewOutputsLeaveTheShareOpen) {
  const std::vector<double> exact = random_values(1000);
  std::vector<double> ours = rounded(kBf16, exact);
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, ours, exact)).share_applies);
}

TEST(Measures, OneOutputAStepAwayFails) {
  const std::vector<double> exact = random_values(kCount);
  for (const tn_dtype dtype : {TN_F16, TN_BF16}) {
    const Format& format = format_of(dtype);
    std::vector<double> ours = rounded(format, exact);
    // The exact value lies on the one side of its rounding; a step to the other side is a wrong rounding by far.
    ours[17] += ours[17] > exact[17] ? spacing(format, exact[17]) : -spacing(format, exact[17]);
    const Accuracy accuracy = compare(format, ours, exact);
    EXPECT_EQ(accuracy.worst_ulp, 1);
    EXPECT_GT(accuracy.worst_units, 100);
    const Verdict verdict = judge(dtype, accuracy);
    EXPECT_TRUE(verdict.share);
    EXPECT_FALSE(verdict.worst);
  }
}

TEST(Measures, Fp32OutputsAreHeldToUnitsOfTheirScale) {
  // With a scale of 2 a step of FP32 at 1 is half a unit, and half a step belongs to the store.
  const Accuracy accuracy = compare(kF32, {1.0, 1 + 7 * kFp32Unit}, {1.0, 1.0}, 2);
  EXPECT_NEAR(accuracy.worst_units, 3.25, 1e-6);
  EXPECT_EQ(accuracy.correct, 1);
  const double bar = 1 + 2 * kScaleUnits * kFp32Unit;
  EXPECT_TRUE(judge(TN_F32, compare(kF32, {bar}, {1.0}, 2)).worst);
  EXPECT_FALSE(judge(TN_F32, compare(kF32, {bar + kFp32Unit}, {1.0}, 2)).worst);
  EXPECT_TRUE(statistics_passed(compare(kF32, {1 + 2 * kFp32Unit}, {1.0}, 1)));
  EXPECT_FALSE(statistics_passed(compare(kF32, {1 + 3 * kFp32Unit}, {1.0}, 1)));
  EXPECT_FALSE(statistics_passed(compare(kF32, {kNan}, {1.0}, 1)));
}

TEST(Measures, PowersOfTwoAreNoLoophole) {
  // Just below 1 the steps are half as long: 1 - 2^-8 is a step from the right answer and must not hide in the longer
  // step above.
  const Accuracy accuracy = compare(kBf16, {1 - 0x1p-8}, {1 + 0x1p-16}, 1);
  EXPECT_NEAR(accuracy.worst_units, (0x1p-9 + 0x1p-16) / kFp32Unit, 1e-6);
}

TEST(Measures, CancelledValuesAreHeldToUnitsAlone) {
  const double unit = kFp32Unit;
  // Many BF16 steps from the exact value, yet within kScaleUnits of the scale; the correct ones count for nothing
  // either.
  const Accuracy within = compare(kBf16, {3 * unit, -2 * unit, round_to(kBf16, 1e-9)}, {1e-9, 1e-9, 1e-9}, 1);
  EXPECT_EQ(within.cancelled, 3);
  EXPECT_EQ(within.correct, 0);
  EXPECT_EQ(within.worst_ulp, 0);
  EXPECT_TRUE(judge(TN_BF16, within).worst);
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, {7 * unit}, {1e-9}, 1)).worst);
  // The same values on their own scale are plainly wrong.
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, {3 * unit}, {1e-9}, 1e-9)).worst);
  // An all-zero row has no scale: only zero will do.
  EXPECT_EQ(compare(kBf16, {0.0}, {0.0}, 0).correct, 1);
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, {1e-30}, {0.0}, 0)).worst);
}

TEST(Measures, TruncationAndDoubleRoundingFail) {
  const std::vector<double> exact = random_values(kCount);
  std::vector<double> truncated = rounded(kBf16, exact);
  for (size_t i = 0; i < kCount; ++i) {
    if (std::fabs(truncated[i]) > std::fabs(exact[i]))
      truncated[i] = round_to(kBf16, exact[i] - std::copysign(spacing(kBf16, exact[i]) / 2, exact[i]));
  }
  const Verdict verdict = judge(TN_BF16, compare(kBf16, truncated, exact));
  EXPECT_FALSE(verdict.share);
  EXPECT_FALSE(verdict.worst);
  EXPECT_FALSE(verdict.l2);
  // Rounding to FP16 on the way to BF16 puts one value in eight on a tie, which sends half of them the wrong way.
  const Verdict twice = judge(TN_BF16, compare(kBf16, rounded(kBf16, rounded(kF16, exact)), exact));
  EXPECT_FALSE(twice.share);
  EXPECT_FALSE(twice.worst);
}

TEST(Measures, L2SeesManySmallErrors) {
  // One output in a thousand a step off: a thousandth of the squares become about 13 times as large.
  const std::vector<double> exact = random_values(kCount);
  std::vector<double> ours = rounded(kBf16, exact);
  for (size_t i = 0; i < kCount; i += 1000) ours[i] = next(kBf16, ours[i]);
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, ours, exact)).l2);
}

TEST(Measures, NonFiniteValuesMatchTheirOwnKind) {
  EXPECT_EQ(compare(kF16, {kNan, kInf, -kInf, kInf}, {kNan, kInf, -kInf, 1e9}).correct, 4);
  for (const auto& [ours, exact] : std::vector<std::pair<double, double>>{
           {kNan, 1.0}, {1.0, kNan}, {kInf, -kInf}, {kNan, kInf}, {65504, kInf}, {kInf, kNan}}) {
    const Accuracy accuracy = compare(kF16, {ours}, {exact});
    EXPECT_EQ(accuracy.wrong_non_finite, 1) << ours << " for " << exact;
    EXPECT_FALSE(judge(TN_F16, accuracy).worst);
  }
  // Infinity where the largest number was due is a step if the exact value is at the border, and wrong if it is not.
  EXPECT_TRUE(judge(TN_F16, compare(kF16, {kInf}, {65519.999}, 65520)).worst);
  EXPECT_FALSE(judge(TN_F16, compare(kF16, {kInf}, {65000}, 65520)).worst);
}

TEST(Measures, LlamaAcceptsTheOtherNeighbourWhereThereIsOne) {
  const std::vector<double> exact{2.5};
  const std::vector<double> other{2.5 + 0x1p-5};
  EXPECT_EQ(compare(kBf16, other, exact, 4, &other).worst_units, 0);
  EXPECT_EQ(compare(kBf16, other, exact, 4, &other).correct, 0);  // the share stays strict
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, other, exact)).worst);
  EXPECT_FALSE(judge(TN_BF16, compare(kBf16, {2.5 + 0x1p-4}, exact, 4, &other)).worst);
}

TEST(Measures, NormalisedSumsWeighElementsNotMagnitudes) {
  const std::vector<double> small = random_values(1000);
  std::vector<double> large = small;
  for (double& value : large) value *= 0x1p20;
  // The large case is exact; unnormalised it would hide the other's errors.
  std::vector<double> wrong = rounded(kBf16, small);
  for (double& value : wrong) value = next(kBf16, value);
  Accuracy sum = compare(kBf16, wrong, small, 4).normalised();
  sum.add(compare(kBf16, rounded(kBf16, large), large, 0x1p22).normalised());
  EXPECT_GT(sum.relative_l2(), 1.3 * sum.ideal_relative_l2());
}

// ---- Columns ----

constexpr int64_t kRows = 128;
constexpr int64_t kN = 6;

struct Columns {
  std::vector<float> dy = make(11);
  std::vector<float> s = make(12);
  std::vector<double> rstd = std::vector<double>(kRows, 1.0);

  static std::vector<float> make(uint64_t seed) {
    std::vector<float> values;
    for (const double value : random_values(kRows * kN, seed)) values.push_back(static_cast<float>(value));
    return values;
  }
  ColumnSums sums(int64_t row_count) {
    tn_backward_args args{};
    args.struct_size = sizeof(args);
    args.op = TN_RMS_NORM;
    args.dy = tn_matrix(dy.data(), TN_F32, row_count, kN);
    args.s = tn_matrix(s.data(), TN_F32, row_count, kN);
    return backward(args, {}, rstd).sums;
  }
};

ColumnAccuracy compare_to(const ColumnSums& exact, const std::vector<double>& ours, int64_t row_count = kRows) {
  ColumnAccuracy accuracy;
  compare_columns(ours, exact.dweight, exact.dweight_magnitude, exact.dweight_slack, row_count, accuracy);
  return accuracy;
}

TEST(ColumnMeasures, Fp32SumsPassAndADroppedRowDoesNot) {
  Columns columns;
  const ColumnSums exact = columns.sums(kRows);
  std::vector<double> fp32(kN);
  for (size_t j = 0; j < kN; ++j) {
    float sum = 0;
    for (size_t row = 0; row < kRows; ++row) sum = std::fma(columns.dy[row * kN + j], columns.s[row * kN + j], sum);
    fp32[j] = static_cast<double>(sum);
  }
  EXPECT_TRUE(compare_to(exact, fp32).passed()) << compare_to(exact, fp32).worst;
  EXPECT_GT(compare_to(exact, fp32).worst, 0);
  EXPECT_EQ(compare_to(exact, fp32).columns, kN);
  EXPECT_FALSE(compare_to(exact, columns.sums(kRows - 1).dweight).passed());
  // One term with a relative error of 2^-8, as if it had been rounded to BF16 on its way.
  fp32[2] += static_cast<double>(columns.dy[2] * columns.s[2]) * 0x1p-8;
  EXPECT_FALSE(compare_to(exact, fp32).passed());
}

TEST(ColumnMeasures, TheBarGrowsWithTheLogarithmOfTheRows) {
  EXPECT_EQ(column_bar(0), 0x1p-22);
  EXPECT_EQ(column_bar(1), 0x1p-22);
  EXPECT_EQ(column_bar(1024), 10 * 0x1p-22);
}

TEST(ColumnMeasures, WithoutRowsOnlyZeroWillDo) {
  const ColumnSums none(2);
  EXPECT_TRUE(compare_to(none, {0, -0.0}, 0).passed());
  EXPECT_FALSE(compare_to(none, {0, 1e-40}, 0).passed());
  EXPECT_FALSE(compare_to(none, {0, kNan}, 0).passed());
}

TEST(ColumnMeasures, SlackIsOnTopOfTheBar) {
  ColumnSums exact(1);
  exact.dweight = {1};
  exact.dweight_magnitude = {1};
  exact.dweight_slack = {0x1p-7};
  EXPECT_TRUE(compare_to(exact, {1 + 0x1p-7}).passed());
  EXPECT_FALSE(compare_to(exact, {1 + 0x1p-6}).passed());
}

TEST(ColumnMeasures, StoredOnesMustBeTheRoundedFp32Ones) {
  const std::vector<double> fp32{1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-20, kNan, kInf};
  EXPECT_EQ(count_wrong_roundings(kBf16, std::vector<double>{1, 1 + 0x1p-7, kNan, kInf}, fp32), 0);
  EXPECT_EQ(count_wrong_roundings(kBf16, std::vector<double>{1 + 0x1p-7, 1, kNan, -kInf}, fp32), 3);
}

}  // namespace
}  // namespace truenorm::reference
