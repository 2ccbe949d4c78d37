// The two calls of the library on at::Tensors: views, outputs, scratch, and errors as PyTorch raises them. Knows
// nothing of autograd, of the dispatcher or of Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <truenorm/truenorm.h>

#include <array>
#include <cstdint>

namespace truenorm::binding {

// What is computed; the same for forward and backward. `columns`: how many dimensions of x, its last, make up N.
struct Norm {
  tn_op op = TN_RMS_NORM;
  tn_rounding rounding = TN_ROUND_ONCE;
  double eps = 0;
  double offset = 0;
  std::int64_t columns = 1;

  bool layer_norm() const { return op == TN_LAYER_NORM; }
  const char* name() const { return layer_norm() ? "layer_norm" : "rms_norm"; }
};

// Undefined tensors are absent ones.
struct ForwardInputs {
  const at::Tensor& x;
  const at::Tensor& residual;
  const at::Tensor& weight;
  const at::Tensor& bias;
  at::ScalarType residual_dtype;  // of residual_out
  at::ScalarType out_dtype;       // of y
};

struct ForwardOutputs {
  at::Tensor y;             // x's shape, dense
  at::Tensor residual_out;  // the same; with a residual
  at::Tensor mean, rstd;    // x's shape without the columns, FP32; where asked for (mean: layer_norm)
};

ForwardOutputs forward(const Norm& norm, const ForwardInputs& in, bool statistics);

// Which gradients a backward makes, and the order in which they are returned.
enum Wanted { kX, kResidual, kWeight, kBias, kGradients };
using WantedMask = std::array<bool, kGradients>;

// dy and ds undefined: not used. At least one of them is there.
struct BackwardInputs {
  const at::Tensor& dy;
  const at::Tensor& ds;
  const at::Tensor& s;
  const at::Tensor& mean;
  const at::Tensor& rstd;
  const at::Tensor& weight;
  at::ScalarType x_dtype, residual_dtype, bias_dtype;
};

// Of each gradient that is wanted, a dense tensor of its own; the others are undefined.
std::array<at::Tensor, kGradients> backward(const Norm& norm, const BackwardInputs& in, const WantedMask& wanted);

// What both the kernels and the meta functions ask of shapes and devices; throw a sentence that names the tensor.
void check_dimensions(const Norm& norm, const at::Tensor& t, const char* name);
void check_forward(const Norm& norm, const ForwardInputs& in);

}  // namespace truenorm::binding
