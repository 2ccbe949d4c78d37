// How far results are from the oracle's, and the bars they must meet (docs/numerics.md, "What must hold").
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>
#include <span>

#include "reference/format.hpp"

namespace truenorm::reference {

// ---- Matrices: y, dx, dresidual ----

// Every output must be the rounding of some value within this many FP32 units (2^-23) of the exact one, relative to
// its scale: the magnitude of the terms that it is made of (ForwardRow::y_scale, BackwardRow::scale). An FP32 rstd may
// be 1.5 units off: mean square, eps, root and quotient round by up to half a unit each, the first two counting half
// after the root, and the sum of squares has an error of its own. dx meets rstd three times, and two products.
inline constexpr double kScaleUnits = 6;
// The same for the saved mean and rstd.
inline constexpr double kStatisticUnits = 2;
// Share of outputs equal to the correctly rounded FP64 result; none for FP32, whose arithmetic is its storage format.
inline constexpr double kCorrectShareBf16 = 0.9999;
inline constexpr double kCorrectShareF16 = 0.9998;
// From so many elements on that chance no longer decides whether a share meets its bar.
inline constexpr int64_t kShareMinimum = 200'000;
// "Equal to 3 digits", for two relative L2 errors.
inline constexpr double kL2Agreement = 5e-4;

// What was seen of one output of one or more calls.
struct Accuracy {
  int64_t elements = 0;
  // 16-bit outputs where FP64 cancellation left a value so tiny that half a step of the format at it is less than
  // kScaleUnits FP32 units of the scale: FP32 cannot place these within a step, only within the units. (Normalising
  // rows of one element, say: a gradient there is the difference of two equal terms.)
  int64_t cancelled = 0;
  int64_t correct = 0;           // of those that are not cancelled: equal to the correctly rounded exact value
  int64_t worst_ulp = 0;         // of those that are not cancelled: steps from the correct rounding
  double worst_units = 0;        // of all: see kScaleUnits
  int64_t wrong_non_finite = 0;  // NaN or infinite where the exact value says otherwise, or the reverse
  // Sums of squares over the finite ones: errors, errors of the correct rounding, the differences between the output
  // and the correct rounding, exact values, scales.
  double error2 = 0;
  double ideal_error2 = 0;
  double difference2 = 0;
  double exact2 = 0;
  double scale2 = 0;

  void add(const Accuracy& other);
  // The same with the squares divided by the mean squared scale, so that in a sum over cases each element counts alike
  // whatever its case's magnitude.
  Accuracy normalised() const;

  double correct_share() const;  // 1 where there are no elements
  // Relative L2 errors, 0 where there are no elements: of the outputs, of the correctly rounded exact values, and of
  // the first against the second.
  double relative_l2() const;
  double ideal_relative_l2() const;
  double relative_l2_from_ideal() const;
};

// Compares one row of n outputs, given as doubles, with the exact values. `other` may be null; where it is not, an
// output may as well be the rounding of other[i] (llama rounding: ForwardRow::y_other), which then decides worst_ulp
// and worst_units, while `correct` and the squares hold the output to `exact` alone.
void compare_row(const Format& format, const double* ours, const double* exact, const double* other,
                 const double* scale, int64_t n, Accuracy& accuracy);

// The bars for outputs of one type. `share_applies`: whether kShareMinimum elements have been seen.
struct Verdict {
  bool share = true;
  bool worst = true;  // units, steps and non-finite values
  bool l2 = true;
  bool share_applies = false;
  bool passed() const { return share && worst && l2; }
};
Verdict judge(tn_dtype dtype, const Accuracy& accuracy);
// The bar for mean and rstd.
bool statistics_passed(const Accuracy& accuracy);

// ---- Columns: dweight, dbias before their one rounding ----

// |ours - exact| <= column_bar(M) * sum |terms|, with column_bar(M) = 2^-22 * log2(max(M, 2)).
double column_bar(int64_t rows);

struct ColumnAccuracy {
  int64_t columns = 0;
  double worst = 0;  // the largest error, in bars: 1 just meets it
  int64_t wrong_non_finite = 0;

  void add(const ColumnAccuracy& other);
  bool passed() const { return worst <= 1 && wrong_non_finite == 0; }
};

// `ours` are FP32 sums over `rows` rows. `slack` is empty or what an error may be over and above the bar
// (ColumnSums::dweight_slack). A column whose terms are all zero, or that has none, must be zero.
void compare_columns(std::span<const double> ours, std::span<const double> exact, std::span<const double> magnitude,
                     std::span<const double> slack, int64_t rows, ColumnAccuracy& accuracy);

// How many of `stored` differ from the FP32 sums rounded once to the format. NaN equals NaN.
int64_t count_wrong_roundings(const Format& format, std::span<const double> stored, std::span<const double> fp32);

}  // namespace truenorm::reference
