// The formulas, element by element and row by row. Each line that rounds is one IEEE operation; "store" marks the
// roundings to a storage type. docs/numerics.md derives them and works through an example.
//
// An absent operand is replaced by a value that leaves every bit of the result as it is:
//   weight 1 (and no offset), bias -0, residual -0, ds -0.
#pragma once

#include "spec/arithmetic.hpp"

namespace truenorm::spec {

inline constexpr float kNoWeight = 1.0f;
inline constexpr float kNoAddend = -0.0f;

// What is added to the weight: an offset of zero is none, so that a weight of -0 stays what it is.
TN_FN float effective_offset(float offset) { return offset == 0.0f ? kNoAddend : offset; }

// Element formulas over the operations O (a float, a SIMD vector, a CUDA thread's float).
template <class O>
struct Elements {
  using F = typename O::F;

  // s before its store to the residual stream's type; s as stored is what gets normalised.
  static TN_FN F residual_sum(F x, F residual) { return O::add(x, residual); }

  // `offset` as effective_offset gives it.
  static TN_FN F effective_weight(F weight, F offset) { return O::add(weight, offset); }

  // LayerNorm's s - mean; for RMSNorm the "centred" value is s itself.
  static TN_FN F centred(F s, F mean) { return O::sub(s, mean); }

  // xhat. Llama rounding stores it to x's type here; otherwise it stays as it is.
  static TN_FN F normalised(F centred, F rstd) { return O::mul(centred, rstd); }

  // y before its store. With bias -0 this is round(xhat * w).
  static TN_FN F output(F xhat, F w, F bias) { return O::fma(xhat, w, bias); }

  // dy * centred, which serves the row's sum and the weight's gradient both (exact in FP32 when both are 16-bit).
  static TN_FN F product(F dy, F centred) { return O::mul(dy, centred); }

  static TN_FN F grad_weight(F sum, F product, F rstd) { return O::fma(product, rstd, sum); }
  // The same under llama rounding of a 16-bit x: xhat as the forward rounded it.
  static TN_FN F grad_weight_llama(F sum, F dy, F rounded_xhat) { return O::fma(dy, rounded_xhat, sum); }
  static TN_FN F grad_bias(F sum, F dy) { return O::add(sum, dy); }

  // dx before its store: rstd * (dy * w - centred * slope - shift) + ds, with ds = -0 where absent.
  static TN_FN F grad_rms(F dy, F w, F s, F minus_slope, F rstd, F ds) {
    return O::fma(rstd, O::fma(s, minus_slope, O::mul(dy, w)), ds);
  }
  static TN_FN F grad_layer(F dy, F w, F centred, F minus_slope, F shift, F rstd, F ds) {
    return O::fma(rstd, O::sub(O::fma(centred, minus_slope, O::mul(dy, w)), shift), ds);
  }
};

// Row formulas. n is N converted to FP32 (nearest even).

// 1 / sqrt(mean_square + eps). The quotient of a rounded root is up to one and a half units off; one step of Newton's
// iteration on 1/r^2, its residual 1 - r^2 v exact to FP32, brings it within about half a unit. It serves every element
// of the row, and its error is common to them all. Where v is zero or infinite the step is not a number, and r stands.
TN_FN float rstd_of(float mean_square, float eps) {
  const float v = Scalar::add(mean_square, eps);
  const float r = Scalar::div(1.0f, Scalar::sqrt(v));
  const float root = Scalar::mul(r, v);
  const float root_error = Scalar::fma(r, v, -root);
  const float residual = Scalar::fma(-root_error, r, Scalar::fma(-root, r, 1.0f));
  const float corrected = Scalar::fma(Scalar::mul(0.5f, r), residual, r);
  return corrected == corrected ? corrected : r;
}

TN_FN float rms_rstd(float sum_of_squares, float n, float eps) { return rstd_of(Scalar::div(sum_of_squares, n), eps); }

// LayerNorm's statistics in two passes over the row: sum(s) gives a first mean; then, with d = s - first mean,
// sum(d) and sum(d^2) correct what rounding the first mean left behind (Chan, Golub & LeVeque 1983, "corrected
// two-pass"): without it a row of 10000 + i/1000 has its variance wrong in the second digit.
struct LayerStatistics {
  float mean;
  float rstd;
};
TN_FN LayerStatistics layer_statistics(float first_mean, float sum_d, float sum_d2, float n, float eps) {
  const float correction = Scalar::div(sum_d, n);
  const float variance = Scalar::fma(-correction, correction, Scalar::div(sum_d2, n));
  // Rounding can leave a constant row a hair below zero; a NaN stays one.
  return {Scalar::add(first_mean, correction), rstd_of(variance < 0.0f ? 0.0f : variance, eps)};
}

// -slope, where slope = rstd^2 * sum(product * w) / N, ordered so that neither rstd^2 nor the sum overflows early.
TN_FN float minus_slope_of(float sum, float n, float rstd) {
  return -Scalar::mul(Scalar::div(Scalar::mul(sum, rstd), n), rstd);
}

// LayerNorm's shift: the mean of dy * w.
TN_FN float shift_of(float sum, float n) { return Scalar::div(sum, n); }

}  // namespace truenorm::spec
