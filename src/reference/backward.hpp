// The backward in FP64, from the formulas in truenorm.h.
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>
#include <span>
#include <vector>

namespace truenorm::reference {

// One row.
struct BackwardRow {
  std::vector<double> ds_total;  // [N] what dx and dresidual are the roundings of
  // [N] the magnitude of the terms that make ds_total, whatever cancels. With h = |xhat| + mean_magnitude * rstd (see
  // ForwardRow) and g = dy * w: rstd * (|g| + h * sum(|g| * h) / N) + |ds|, and rstd * sum(|g|) / N for LayerNorm.
  std::vector<double> scale;
};

// Sums down the rows: per column the exact gradient and the sum of the magnitudes of its terms.
struct ColumnSums {
  explicit ColumnSums(int64_t columns);
  void add(const ColumnSums& other);

  std::vector<double> dweight;  // [N] sum of dy * xhat, xhat made with the saved statistics where there are any
  std::vector<double> dweight_magnitude;  // [N] sum of |dy| * h, h as above
  // [N] llama rounding of a 16-bit x: by how much dweight moves if every xhat that lies at a rounding boundary, as
  // FP32 sees it (round_xhat), falls on its other side.
  std::vector<double> dweight_slack;
  std::vector<double> dbias;            // [N] sum of dy
  std::vector<double> dbias_magnitude;  // [N] sum of |dy|
};

class Backward {
 public:
  // Keeps a copy of `args`, whose inputs must stay; its outputs are not looked at. `mean` and `rstd` are the exact
  // statistics ([M] each, from Forward; mean for LayerNorm only), which must stay too. Empty: the saved ones in `args`.
  explicit Backward(const tn_backward_args& args, std::span<const double> mean = {}, std::span<const double> rstd = {});
  Backward(const Backward&) = delete;  // the spans may point into the object
  Backward& operator=(const Backward&) = delete;

  int64_t rows() const { return rows_; }        // M
  int64_t columns() const { return columns_; }  // N

  // Computes row m and adds its terms to `sums`. Any number of threads may call at once, each with its own `sums`.
  void row(int64_t m, BackwardRow& out, ColumnSums& sums) const;

 private:
  void norm_gradient(int64_t m, BackwardRow& out, ColumnSums& sums) const;

  tn_backward_args args_;
  int64_t rows_;
  int64_t columns_;
  tn_dtype x_dtype_;
  bool rounds_xhat_;
  std::vector<double> weight_;  // weight + offset
  std::vector<double> saved_mean_;
  std::vector<double> saved_rstd_;
  std::span<const double> mean_;
  std::span<const double> rstd_;
};

// All rows at once, for small shapes: ds_total and its scale are [M * N].
struct BackwardResult {
  std::vector<double> ds_total;
  std::vector<double> scale;
  ColumnSums sums;
};
BackwardResult backward(const tn_backward_args& args, std::span<const double> mean = {},
                        std::span<const double> rstd = {});

}  // namespace truenorm::reference
