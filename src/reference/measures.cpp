#include "reference/measures.hpp"

#include <algorithm>
#include <cmath>

#include "reference/forward.hpp"

namespace truenorm::reference {
namespace {

constexpr double kSmallestF32 = 0x1p-149;

struct Distance {
  int64_t ulp;
  double units;
};

// How far the finite `exact` lies outside the interval of values that round to `ours`, 0 when inside.
double outside_rounding_interval(const Format& format, double ours, double exact) {
  const double magnitude = std::fabs(ours);
  const bool outwards = ours == 0 || (exact - ours > 0) == (ours > 0);
  const double step = spacing(format, outwards ? magnitude : std::nextafter(magnitude, 0.0));
  return std::max(0.0, std::fabs(exact - ours) - step / 2);
}

double fp32_unit(double scale) { return std::max(scale * kFp32Unit, kSmallestF32); }

bool is_cancelled(const Format& format, double exact, double scale) {
  return format.precision < kF32.precision && spacing(format, exact) / 2 < kScaleUnits * fp32_unit(scale);
}

// `exact` is finite, `ours` not NaN.
Distance distance(const Format& format, double ours, double exact, double scale) {
  return {ulp_distance(format, ours, round_to(format, exact)),
          outside_rounding_interval(format, finite_stand_in(format, ours), exact) / fp32_unit(scale)};
}

bool same_special(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

double root_of_ratio(double numerator, double denominator) {
  return denominator > 0 ? std::sqrt(numerator / denominator) : 0.0;
}

}  // namespace

void Accuracy::add(const Accuracy& other) {
  elements += other.elements;
  correct += other.correct;
  cancelled += other.cancelled;
  worst_ulp = std::max(worst_ulp, other.worst_ulp);
  worst_units = std::max(worst_units, other.worst_units);
  wrong_non_finite += other.wrong_non_finite;
  error2 += other.error2;
  ideal_error2 += other.ideal_error2;
  difference2 += other.difference2;
  exact2 += other.exact2;
  scale2 += other.scale2;
}

Accuracy Accuracy::normalised() const {
  Accuracy result = *this;
  const double factor = scale2 > 0 ? static_cast<double>(elements) / scale2 : 0.0;
  for (double* sum : {&result.error2, &result.ideal_error2, &result.difference2, &result.exact2, &result.scale2}) {
    *sum *= factor;
  }
  return result;
}

double Accuracy::correct_share() const {
  const int64_t counted = elements - cancelled;
  return counted == 0 ? 1.0 : static_cast<double>(correct) / static_cast<double>(counted);
}

double Accuracy::relative_l2() const { return root_of_ratio(error2, exact2); }

double Accuracy::ideal_relative_l2() const { return root_of_ratio(ideal_error2, exact2); }

double Accuracy::relative_l2_from_ideal() const { return root_of_ratio(difference2, exact2); }

void compare_row(const Format& format, const double* ours, const double* exact, const double* other,
                 const double* scale, int64_t n, Accuracy& accuracy) {
  accuracy.elements += n;
  for (int64_t i = 0; i < n; ++i) {
    const double ideal = round_to(format, exact[i]);
    const double ideal_error = ideal - exact[i];
    const double error = ours[i] - exact[i];
    if (std::isfinite(error) && std::isfinite(ideal_error)) {
      accuracy.error2 += error * error;
      accuracy.ideal_error2 += ideal_error * ideal_error;
      accuracy.difference2 += (ours[i] - ideal) * (ours[i] - ideal);
      accuracy.exact2 += exact[i] * exact[i];
      accuracy.scale2 += scale[i] * scale[i];
    }
    const bool cancelled = is_cancelled(format, exact[i], scale[i]);
    if (cancelled) ++accuracy.cancelled;
    if (same_special(ours[i], ideal)) {
      if (!cancelled) ++accuracy.correct;
      continue;
    }
    if (!std::isfinite(exact[i]) || std::isnan(ours[i])) {
      ++accuracy.wrong_non_finite;
      continue;
    }
    Distance found = distance(format, ours[i], exact[i], scale[i]);
    if (other != nullptr && other[i] != exact[i]) {
      const Distance second = distance(format, ours[i], other[i], scale[i]);
      if (second.units < found.units) found = second;
    }
    accuracy.worst_units = std::max(accuracy.worst_units, found.units);
    if (!cancelled) accuracy.worst_ulp = std::max(accuracy.worst_ulp, found.ulp);
  }
}

Verdict judge(tn_dtype dtype, const Accuracy& accuracy) {
  Verdict verdict;
  verdict.worst = accuracy.worst_units <= kScaleUnits && accuracy.wrong_non_finite == 0;
  if (dtype == TN_F32) return verdict;
  verdict.worst = verdict.worst && accuracy.worst_ulp <= 1;
  verdict.share_applies = accuracy.elements - accuracy.cancelled >= kShareMinimum;
  if (verdict.share_applies) {
    verdict.share = accuracy.correct_share() >= (dtype == TN_BF16 ? kCorrectShareBf16 : kCorrectShareF16);
  }
  if (dtype == TN_BF16) {
    verdict.l2 =
        std::fabs(accuracy.relative_l2() - accuracy.ideal_relative_l2()) <= kL2Agreement * accuracy.ideal_relative_l2();
  }
  return verdict;
}

bool statistics_passed(const Accuracy& accuracy) {
  return accuracy.worst_units <= kStatisticUnits && accuracy.wrong_non_finite == 0;
}

double column_bar(int64_t rows) { return 0x1p-22 * std::log2(static_cast<double>(std::max<int64_t>(rows, 2))); }

void ColumnAccuracy::add(const ColumnAccuracy& other) {
  columns += other.columns;
  worst = std::max(worst, other.worst);
  wrong_non_finite += other.wrong_non_finite;
}

void compare_columns(std::span<const double> ours, std::span<const double> exact, std::span<const double> magnitude,
                     std::span<const double> slack, int64_t rows, ColumnAccuracy& accuracy) {
  accuracy.columns += static_cast<int64_t>(ours.size());
  for (size_t j = 0; j < ours.size(); ++j) {
    if (same_special(ours[j], exact[j])) continue;
    if (!std::isfinite(ours[j]) || !std::isfinite(exact[j])) {
      ++accuracy.wrong_non_finite;
      continue;
    }
    const double error = std::fabs(ours[j] - exact[j]) - (slack.empty() ? 0.0 : slack[j]);
    if (error > 0) accuracy.worst = std::max(accuracy.worst, error / (column_bar(rows) * magnitude[j]));
  }
}

int64_t count_wrong_roundings(const Format& format, std::span<const double> stored, std::span<const double> fp32) {
  int64_t wrong = 0;
  for (size_t j = 0; j < stored.size(); ++j) {
    if (!same_special(stored[j], round_to(format, fp32[j]))) ++wrong;
  }
  return wrong;
}

}  // namespace truenorm::reference
