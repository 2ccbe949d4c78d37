// The forward in FP64, from the formulas in truenorm.h.
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>
#include <vector>

#include "reference/format.hpp"

namespace truenorm::reference {

// One FP32 unit: the spacing of FP32 numbers just above 1, so the scale that errors of FP32 arithmetic are measured in.
inline constexpr double kFp32Unit = 0x1p-23;

// Llama rounding of xhat to x's type. FP32 arithmetic may see an xhat up to kXhatUnits FP32 units from the exact one
// (rstd may be 1.5 units off, and the product rounds), so where a rounding boundary lies within that distance the
// neighbour on its other side is as legitimate. `other` is that neighbour, or else equals `value`.
inline constexpr double kXhatUnits = 3;
struct RoundedXhat {
  double value;
  double other;
};
RoundedXhat round_xhat(const Format& x_format, double xhat);

// One row. `y` is what the one rounding at the store should see.
struct ForwardRow {
  std::vector<double> s;  // [N] what is normalised, as stored: x, or x + residual added in FP32 and rounded to its type
  double mean = 0;        // 0 for RMSNorm
  double rstd = 0;
  // The magnitude of what LayerNorm's mean adds up, sum(|s|) / N: an FP32 mean is off by about an FP32 unit of it, and
  // so is every s - mean. 0 for RMSNorm, which subtracts nothing.
  double mean_magnitude = 0;
  std::vector<double> y;        // [N]
  std::vector<double> y_other;  // [N] y with round_xhat's `other`; empty unless llama rounding of a 16-bit x
  // [N] the magnitude of the terms that make y, whatever cancels: (|s - mean| + mean_magnitude) * rstd * |w| + |bias|.
  std::vector<double> y_scale;
};

class Forward {
 public:
  // Keeps a copy of `args`, whose tensors must stay; its outputs count for their types alone.
  explicit Forward(const tn_forward_args& args);

  int64_t rows() const { return rows_; }        // M
  int64_t columns() const { return columns_; }  // N

  // Any number of threads may call at once.
  void row(int64_t m, ForwardRow& out) const;

 private:
  void statistics(ForwardRow& out) const;

  tn_forward_args args_;
  int64_t rows_;
  int64_t columns_;
  tn_dtype s_dtype_;
  bool rounds_xhat_;
  std::vector<double> weight_;  // weight + offset
  std::vector<double> bias_;
};

// All rows at once, for small shapes: s and y are [M * N], mean and rstd [M].
struct ForwardResult {
  std::vector<double> s;
  std::vector<double> y;
  std::vector<double> mean;
  std::vector<double> rstd;
};
ForwardResult forward(const tn_forward_args& args);

}  // namespace truenorm::reference
