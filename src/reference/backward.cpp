#include "reference/backward.hpp"

#include <cmath>

#include "reference/format.hpp"
#include "reference/forward.hpp"
#include "reference/tensor.hpp"

namespace truenorm::reference {
namespace {

void add_to(std::vector<double>& sum, const std::vector<double>& other) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
}

}  // namespace

ColumnSums::ColumnSums(int64_t columns)
    : dweight(static_cast<size_t>(columns)),
      dweight_magnitude(dweight),
      dweight_slack(dweight),
      dbias(dweight),
      dbias_magnitude(dweight) {}

void ColumnSums::add(const ColumnSums& other) {
  add_to(dweight, other.dweight);
  add_to(dweight_magnitude, other.dweight_magnitude);
  add_to(dweight_slack, other.dweight_slack);
  add_to(dbias, other.dbias);
  add_to(dbias_magnitude, other.dbias_magnitude);
}

Backward::Backward(const tn_backward_args& args, std::span<const double> mean, std::span<const double> rstd)
    : args_(args),
      rows_(reference::rows(present(args.dy) ? args.dy : args.ds)),
      columns_(reference::columns(present(args.dy) ? args.dy : args.ds)),
      x_dtype_(args.x_dtype == TN_DTYPE_NONE ? args.s.dtype : args.x_dtype),
      rounds_xhat_(args.op == TN_RMS_NORM && args.rounding == TN_ROUND_LLAMA && x_dtype_ != TN_F32),
      weight_(static_cast<size_t>(columns_), 1.0),
      mean_(mean),
      rstd_(rstd) {
  if (present(args.weight)) {
    weight_ = load_vector(args.weight);
    for (double& w : weight_) w += static_cast<double>(args.offset);
  }
  if (present(args.rstd)) saved_rstd_ = load_vector(args.rstd);
  if (present(args.mean)) saved_mean_ = load_vector(args.mean);
  if (rstd_.empty()) rstd_ = saved_rstd_;
  if (mean_.empty()) mean_ = saved_mean_;
}

// Fills ds_total and scale with everything but ds.
void Backward::norm_gradient(int64_t m, BackwardRow& out, ColumnSums& sums) const {
  const auto size = static_cast<size_t>(columns_);
  const auto n = static_cast<double>(columns_);
  const bool layer = args_.op == TN_LAYER_NORM;
  const double rstd = rstd_[static_cast<size_t>(m)];
  const double mean = layer ? mean_[static_cast<size_t>(m)] : 0.0;
  const double saved_rstd = saved_rstd_.empty() ? rstd : saved_rstd_[static_cast<size_t>(m)];
  const double saved_mean = !layer || saved_mean_.empty() ? mean : saved_mean_[static_cast<size_t>(m)];

  std::vector<double> s(size);
  std::vector<double> dy(size);
  load_row(args_.s, m, s.data());
  load_row(args_.dy, m, dy.data());

  double mean_magnitude = 0;
  if (layer) {
    for (const double value : s) mean_magnitude += std::fabs(value);
    mean_magnitude /= n;
  }

  double sum_g = 0;
  double sum_gx = 0;
  double magnitude_g = 0;
  double magnitude_gx = 0;
  for (size_t i = 0; i < size; ++i) {
    const double xhat = (s[i] - mean) * rstd;
    const double xhat_magnitude = std::fabs(xhat) + mean_magnitude * rstd;
    const double g = dy[i] * weight_[i];
    sum_g += g;
    sum_gx += g * xhat;
    magnitude_g += std::fabs(g);
    magnitude_gx += std::fabs(g) * xhat_magnitude;

    sums.dweight_magnitude[i] += std::fabs(dy[i]) * xhat_magnitude;
    sums.dbias[i] += dy[i];
    sums.dbias_magnitude[i] += std::fabs(dy[i]);
    const double saved_xhat = (s[i] - saved_mean) * saved_rstd;
    if (rounds_xhat_) {
      const RoundedXhat rounded = round_xhat(format_of(x_dtype_), saved_xhat);
      sums.dweight[i] += dy[i] * rounded.value;
      sums.dweight_slack[i] += std::fabs(dy[i] * (rounded.value - rounded.other));
    } else {
      sums.dweight[i] += dy[i] * saved_xhat;
    }
  }

  const double c = sum_gx / n;
  const double c_magnitude = magnitude_gx / n;
  const double mean_g = layer ? sum_g / n : 0.0;
  const double mean_g_magnitude = layer ? magnitude_g / n : 0.0;
  for (size_t i = 0; i < size; ++i) {
    const double xhat = (s[i] - mean) * rstd;
    const double xhat_magnitude = std::fabs(xhat) + mean_magnitude * rstd;
    const double g = dy[i] * weight_[i];
    out.ds_total[i] = rstd * (g - mean_g - xhat * c);
    out.scale[i] = rstd * (std::fabs(g) + mean_g_magnitude + xhat_magnitude * c_magnitude);
  }
}

void Backward::row(int64_t m, BackwardRow& out, ColumnSums& sums) const {
  const auto size = static_cast<size_t>(columns_);
  out.ds_total.assign(size, 0.0);
  out.scale.assign(size, 0.0);
  if (present(args_.dy)) norm_gradient(m, out, sums);
  if (!present(args_.ds)) return;
  std::vector<double> ds(size);
  load_row(args_.ds, m, ds.data());
  for (size_t i = 0; i < size; ++i) {
    out.ds_total[i] += ds[i];
    out.scale[i] += std::fabs(ds[i]);
  }
}

BackwardResult backward(const tn_backward_args& args, std::span<const double> mean, std::span<const double> rstd) {
  const Backward oracle(args, mean, rstd);
  BackwardResult result{{}, {}, ColumnSums(oracle.columns())};
  BackwardRow row;
  for (int64_t m = 0; m < oracle.rows(); ++m) {
    oracle.row(m, row, result.sums);
    result.ds_total.insert(result.ds_total.end(), row.ds_total.begin(), row.ds_total.end());
    result.scale.insert(result.scale.end(), row.scale.begin(), row.scale.end());
  }
  return result;
}

}  // namespace truenorm::reference
