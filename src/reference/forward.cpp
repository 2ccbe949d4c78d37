#include "reference/forward.hpp"

#include <cmath>

#include "reference/tensor.hpp"

namespace truenorm::reference {

RoundedXhat round_xhat(const Format& x_format, double xhat) {
  const double value = round_to(x_format, xhat);
  const double low = round_to(x_format, xhat * (1 - kXhatUnits * kFp32Unit));
  const double high = round_to(x_format, xhat * (1 + kXhatUnits * kFp32Unit));
  return {value, low != value ? low : high};
}

Forward::Forward(const tn_forward_args& args)
    : args_(args),
      rows_(reference::rows(args.x)),
      columns_(reference::columns(args.x)),
      s_dtype_(present(args.residual_out) ? args.residual_out.dtype : args.residual.dtype),
      rounds_xhat_(args.op == TN_RMS_NORM && args.rounding == TN_ROUND_LLAMA && args.x.dtype != TN_F32),
      weight_(static_cast<size_t>(columns_), 1.0),
      bias_(static_cast<size_t>(columns_), 0.0) {
  if (present(args.weight)) {
    weight_ = load_vector(args.weight);
    for (double& w : weight_) w += static_cast<double>(args.offset);
  }
  if (present(args.bias)) bias_ = load_vector(args.bias);
}

void Forward::statistics(ForwardRow& out) const {
  const auto n = static_cast<double>(columns_);
  out.mean = 0;
  out.mean_magnitude = 0;
  if (args_.op == TN_LAYER_NORM) {
    double sum = 0;
    double magnitude = 0;
    for (const double s : out.s) {
      sum += s;
      magnitude += std::fabs(s);
    }
    out.mean = sum / n;
    out.mean_magnitude = magnitude / n;
  }
  double squares = 0;
  for (const double s : out.s) squares += (s - out.mean) * (s - out.mean);
  out.rstd = 1 / std::sqrt(squares / n + static_cast<double>(args_.eps));
}

void Forward::row(int64_t m, ForwardRow& out) const {
  const auto size = static_cast<size_t>(columns_);
  out.s.resize(size);
  out.y.resize(size);
  out.y_scale.resize(size);
  out.y_other.resize(rounds_xhat_ ? size : 0);

  load_row(args_.x, m, out.s.data());
  if (present(args_.residual)) {
    load_row(args_.residual, m, out.y.data());
    const Format& format = format_of(s_dtype_);
    // An FP64 sum of two FP32 numbers, rounded to FP32, is their FP32 sum: 53 >= 2 * 24 + 2 bits.
    for (size_t i = 0; i < size; ++i) out.s[i] = round_to(format, round_to(kF32, out.s[i] + out.y[i]));
  }
  statistics(out);

  for (size_t i = 0; i < size; ++i) {
    const double xhat = (out.s[i] - out.mean) * out.rstd;
    out.y[i] = xhat * weight_[i] + bias_[i];
    out.y_scale[i] = (std::fabs(xhat) + out.mean_magnitude * out.rstd) * std::fabs(weight_[i]) + std::fabs(bias_[i]);
  }
  if (!rounds_xhat_) return;
  const Format& x_format = format_of(args_.x.dtype);
  for (size_t i = 0; i < size; ++i) {
    const RoundedXhat xhat = round_xhat(x_format, out.s[i] * out.rstd);
    out.y[i] = xhat.value * weight_[i] + bias_[i];
    out.y_other[i] = xhat.other * weight_[i] + bias_[i];
  }
}

ForwardResult forward(const tn_forward_args& args) {
  const Forward oracle(args);
  ForwardResult result;
  ForwardRow row;
  for (int64_t m = 0; m < oracle.rows(); ++m) {
    oracle.row(m, row);
    result.s.insert(result.s.end(), row.s.begin(), row.s.end());
    result.y.insert(result.y.end(), row.y.begin(), row.y.end());
    result.mean.push_back(row.mean);
    result.rstd.push_back(row.rstd);
  }
  return result;
}

}  // namespace truenorm::reference
