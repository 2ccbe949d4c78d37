#include "ops.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "autograd.hpp"

namespace truenorm::binding {

namespace {

using at::ScalarType;
using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using MaybeType = std::optional<ScalarType>;
using RmsForward = std::tuple<Tensor, Tensor, Tensor>;            // y, residual_out, rstd
using LayerForward = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // y, residual_out, mean, rstd
using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor>;      // dx, dresidual, dweight, dbias
using Mask = std::array<bool, 4>;

Norm rms(double eps, double offset, std::string_view casting_mode) {
  return {TN_RMS_NORM, rounding_of(casting_mode), eps, offset, 1};
}
Norm layer(std::int64_t columns, double eps, double offset) {
  return {TN_LAYER_NORM, TN_ROUND_ONCE, eps, offset, columns};
}

// The inputs of a forward operator, with the defaults of its types filled in. Holds what ForwardInputs refers to.
struct Inputs {
  Tensor residual, weight, bias;
  ForwardInputs in;

  Inputs(const Tensor& x, const MaybeTensor& residual_, const MaybeTensor& weight_, const MaybeTensor& bias_,
         MaybeType residual_dtype, MaybeType out_dtype)
      : residual(residual_.value_or(Tensor())),
        weight(weight_.value_or(Tensor())),
        bias(bias_.value_or(Tensor())),
        in{x,
           residual,
           weight,
           bias,
           residual_dtype.value_or(residual.defined() ? residual.scalar_type() : x.scalar_type()),
           out_dtype.value_or(x.scalar_type())} {}
};

// An operator's result is a tensor: what was not asked for is an empty one.
Tensor or_empty(const Tensor& t, const Tensor& like) { return t.defined() ? t : at::empty({0}, like.options()); }

RmsForward as_rms(const ForwardOutputs& out) { return {out.y, or_empty(out.residual_out, out.y), out.rstd}; }
LayerForward as_layer(const ForwardOutputs& out) {
  return {out.y, or_empty(out.residual_out, out.y), out.mean, out.rstd};
}

// ---- Kernels

RmsForward rms_forward(const Tensor& x, const MaybeTensor& residual, const MaybeTensor& weight, const MaybeTensor& bias,
                       double eps, double offset, std::string_view casting_mode, MaybeType residual_dtype,
                       MaybeType out_dtype) {
  const Inputs inputs(x, residual, weight, bias, residual_dtype, out_dtype);
  return as_rms(forward(rms(eps, offset, casting_mode), inputs.in, true));
}

LayerForward layer_forward(const Tensor& x, const MaybeTensor& residual, const MaybeTensor& weight,
                           const MaybeTensor& bias, std::int64_t columns, double eps, double offset,
                           MaybeType residual_dtype, MaybeType out_dtype) {
  const Inputs inputs(x, residual, weight, bias, residual_dtype, out_dtype);
  return as_layer(forward(layer(columns, eps, offset), inputs.in, true));
}

Backward packed(const std::array<Tensor, kGradients>& out, const Tensor& like) {
  return {or_empty(out[kX], like), or_empty(out[kResidual], like), or_empty(out[kWeight], like),
          or_empty(out[kBias], like)};
}

Backward run_backward(const Norm& norm, const MaybeTensor& dy, const MaybeTensor& ds, const Tensor& s,
                      const Tensor& mean, const Tensor& rstd, const MaybeTensor& weight, ScalarType x_dtype,
                      ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  const Tensor dy_ = dy.value_or(Tensor()), ds_ = ds.value_or(Tensor()), weight_ = weight.value_or(Tensor());
  return packed(backward(norm, {dy_, ds_, s, mean, rstd, weight_, x_dtype, residual_dtype, bias_dtype}, wanted), s);
}

Backward rms_backward(const MaybeTensor& dy, const MaybeTensor& ds, const Tensor& s, const Tensor& rstd,
                      const MaybeTensor& weight, double offset, std::string_view casting_mode, ScalarType x_dtype,
                      ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  return run_backward(rms(0, offset, casting_mode), dy, ds, s, Tensor(), rstd, weight, x_dtype, residual_dtype,
                      bias_dtype, wanted);
}

Backward layer_backward(const MaybeTensor& dy, const MaybeTensor& ds, const Tensor& s, const Tensor& mean,
                        const Tensor& rstd, const MaybeTensor& weight, std::int64_t columns, double offset,
                        ScalarType x_dtype, ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  return run_backward(layer(columns, 0, offset), dy, ds, s, mean, rstd, weight, x_dtype, residual_dtype, bias_dtype,
                      wanted);
}

// ---- Meta functions: shapes and types alone, symbolic ones too

ForwardOutputs meta_forward(const Norm& norm, const ForwardInputs& in) {
  check_forward(norm, in);
  const auto sizes = in.x.sym_sizes();
  const auto batch = sizes.slice(0, static_cast<std::size_t>(in.x.dim() - norm.columns));
  const auto make = [&](c10::SymIntArrayRef shape, ScalarType type) {
    return at::empty_symint(shape, in.x.options().dtype(type));
  };
  ForwardOutputs out;
  out.y = make(sizes, in.out_dtype);
  if (in.residual.defined()) out.residual_out = make(sizes, in.residual_dtype);
  out.rstd = make(batch, at::kFloat);
  if (norm.layer_norm()) out.mean = make(batch, at::kFloat);
  return out;
}

RmsForward rms_forward_meta(const Tensor& x, const MaybeTensor& residual, const MaybeTensor& weight,
                            const MaybeTensor& bias, double eps, double offset, std::string_view casting_mode,
                            MaybeType residual_dtype, MaybeType out_dtype) {
  const Inputs inputs(x, residual, weight, bias, residual_dtype, out_dtype);
  return as_rms(meta_forward(rms(eps, offset, casting_mode), inputs.in));
}

LayerForward layer_forward_meta(const Tensor& x, const MaybeTensor& residual, const MaybeTensor& weight,
                                const MaybeTensor& bias, std::int64_t columns, double eps, double offset,
                                MaybeType residual_dtype, MaybeType out_dtype) {
  const Inputs inputs(x, residual, weight, bias, residual_dtype, out_dtype);
  return as_layer(meta_forward(layer(columns, eps, offset), inputs.in));
}

Backward meta_backward(const Norm& norm, const Tensor& s, const MaybeTensor& weight, ScalarType x_dtype,
                       ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  check_dimensions(norm, s, "s");
  const auto sizes = s.sym_sizes();
  const auto columns = sizes.slice(static_cast<std::size_t>(s.dim() - norm.columns));
  std::array<Tensor, kGradients> out;
  const auto make = [&](Wanted which, c10::SymIntArrayRef shape, ScalarType type) {
    if (wanted[which]) out[which] = at::empty_symint(shape, s.options().dtype(type));
  };
  make(kX, sizes, x_dtype);
  make(kResidual, sizes, residual_dtype);
  if (weight) make(kWeight, columns, weight->scalar_type());
  make(kBias, columns, bias_dtype);
  return packed(out, s);
}

Backward rms_backward_meta(const MaybeTensor&, const MaybeTensor&, const Tensor& s, const Tensor&,
                           const MaybeTensor& weight, double offset, std::string_view casting_mode, ScalarType x_dtype,
                           ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  return meta_backward(rms(0, offset, casting_mode), s, weight, x_dtype, residual_dtype, bias_dtype, wanted);
}

Backward layer_backward_meta(const MaybeTensor&, const MaybeTensor&, const Tensor& s, const Tensor&, const Tensor&,
                             const MaybeTensor& weight, std::int64_t columns, double offset, ScalarType x_dtype,
                             ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  return meta_backward(layer(columns, 0, offset), s, weight, x_dtype, residual_dtype, bias_dtype, wanted);
}

// ---- Autograd: the node of the eager path, around the operator below it

template <class Function>
auto operator_handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

const auto& rms_forward_op() {
  static const auto op = operator_handle<decltype(rms_forward)>("truenorm::rms_norm_forward");
  return op;
}
const auto& layer_forward_op() {
  static const auto op = operator_handle<decltype(layer_forward)>("truenorm::layer_norm_forward");
  return op;
}
const auto& rms_backward_op() {
  static const auto op = operator_handle<decltype(rms_backward)>("truenorm::rms_norm_backward");
  return op;
}
const auto& layer_backward_op() {
  static const auto op = operator_handle<decltype(layer_backward)>("truenorm::layer_norm_backward");
  return op;
}

// Calls the operator as if nothing needed a gradient: the node around it sees to that.
template <class Operator, class... Arguments>
auto below_autograd(const Operator& op, const Arguments&... arguments) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(arguments...);
}

RmsForward rms_forward_autograd(const Tensor& x, const MaybeTensor& residual, const MaybeTensor& weight,
                                const MaybeTensor& bias, double eps, double offset, std::string_view casting_mode,
                                MaybeType residual_dtype, MaybeType out_dtype) {
  const Inputs inputs(x, residual, weight, bias, residual_dtype, out_dtype);
  const auto node = NormBackward::record(rms(eps, offset, casting_mode), inputs.in);
  const RmsForward result =
      below_autograd(rms_forward_op(), x, residual, weight, bias, eps, offset, casting_mode, residual_dtype, out_dtype);
  if (node) node->finish(inputs.in, {std::get<0>(result), std::get<1>(result), {}, std::get<2>(result)}, true);
  return result;
}

LayerForward layer_forward_autograd(const Tensor& x, const MaybeTensor& residual, const MaybeTensor& weight,
                                    const MaybeTensor& bias, std::int64_t columns, double eps, double offset,
                                    MaybeType residual_dtype, MaybeType out_dtype) {
  const Inputs inputs(x, residual, weight, bias, residual_dtype, out_dtype);
  const auto node = NormBackward::record(layer(columns, eps, offset), inputs.in);
  const LayerForward result =
      below_autograd(layer_forward_op(), x, residual, weight, bias, columns, eps, offset, residual_dtype, out_dtype);
  if (node) {
    node->finish(inputs.in, {std::get<0>(result), std::get<1>(result), std::get<2>(result), std::get<3>(result)}, true);
  }
  return result;
}

// The gradients that were wanted; the operator has empty tensors in the others' places.
std::array<Tensor, kGradients> unpacked(const Backward& result, const Mask& wanted) {
  std::array<Tensor, kGradients> out{std::get<0>(result), std::get<1>(result), std::get<2>(result),
                                     std::get<3>(result)};
  for (int i = 0; i < kGradients; ++i) {
    if (!wanted[i]) out[i] = Tensor();
  }
  return out;
}

void refuse(const Norm& norm, const MaybeTensor& dy, const MaybeTensor& ds, const Tensor& s, const MaybeTensor& weight,
            const Backward& result, const Mask& wanted) {
  refuse_double_backward(norm, {dy.value_or(Tensor()), ds.value_or(Tensor()), s, weight.value_or(Tensor())},
                         unpacked(result, wanted));
}

Backward rms_backward_autograd(const MaybeTensor& dy, const MaybeTensor& ds, const Tensor& s, const Tensor& rstd,
                               const MaybeTensor& weight, double offset, std::string_view casting_mode,
                               ScalarType x_dtype, ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  const Backward result = below_autograd(rms_backward_op(), dy, ds, s, rstd, weight, offset, casting_mode, x_dtype,
                                         residual_dtype, bias_dtype, wanted);
  refuse(rms(0, offset, casting_mode), dy, ds, s, weight, result, wanted);
  return result;
}

Backward layer_backward_autograd(const MaybeTensor& dy, const MaybeTensor& ds, const Tensor& s, const Tensor& mean,
                                 const Tensor& rstd, const MaybeTensor& weight, std::int64_t columns, double offset,
                                 ScalarType x_dtype, ScalarType residual_dtype, ScalarType bias_dtype, Mask wanted) {
  const Backward result = below_autograd(layer_backward_op(), dy, ds, s, mean, rstd, weight, columns, offset, x_dtype,
                                         residual_dtype, bias_dtype, wanted);
  refuse(layer(columns, 0, offset), dy, ds, s, weight, result, wanted);
  return result;
}

MaybeTensor maybe(const Tensor& t) { return t.defined() ? MaybeTensor(t) : std::nullopt; }

const char* casting_mode_of(const Norm& norm) { return norm.rounding == TN_ROUND_LLAMA ? "llama" : "gemma"; }

}  // namespace

std::array<Tensor, kGradients> backward_operator(const Norm& norm, const BackwardInputs& in, const WantedMask& wanted) {
  const Backward result =
      norm.layer_norm()
          ? layer_backward_op().call(maybe(in.dy), maybe(in.ds), in.s, in.mean, in.rstd, maybe(in.weight), norm.columns,
                                     norm.offset, in.x_dtype, in.residual_dtype, in.bias_dtype, wanted)
          : rms_backward_op().call(maybe(in.dy), maybe(in.ds), in.s, in.rstd, maybe(in.weight), norm.offset,
                                   casting_mode_of(norm), in.x_dtype, in.residual_dtype, in.bias_dtype, wanted);
  return unpacked(result, wanted);
}

tn_rounding rounding_of(std::string_view casting_mode) {
  if (casting_mode == "llama") return TN_ROUND_LLAMA;
  TORCH_CHECK_VALUE(casting_mode == "gemma" || casting_mode == "none", "truenorm.rms_norm: casting_mode: got '",
                    casting_mode, "'; needs 'llama', 'gemma' or 'none'");
  return TN_ROUND_ONCE;
}

TORCH_LIBRARY(truenorm, library) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  library.def(
      "rms_norm_forward(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, float eps, float offset, "
      "str casting_mode, ScalarType? residual_dtype=None, ScalarType? out_dtype=None) -> "
      "(Tensor y, Tensor residual_out, Tensor rstd)",
      tags);
  library.def(
      "rms_norm_backward(Tensor? dy, Tensor? ds, Tensor s, Tensor rstd, Tensor? weight, float offset, "
      "str casting_mode, ScalarType x_dtype, ScalarType residual_dtype, ScalarType bias_dtype, bool[4] output_mask) -> "
      "(Tensor dx, Tensor dresidual, Tensor dweight, Tensor dbias)",
      tags);
  library.def(
      "layer_norm_forward(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, int columns, float eps, "
      "float offset, ScalarType? residual_dtype=None, ScalarType? out_dtype=None) -> "
      "(Tensor y, Tensor residual_out, Tensor mean, Tensor rstd)",
      tags);
  library.def(
      "layer_norm_backward(Tensor? dy, Tensor? ds, Tensor s, Tensor mean, Tensor rstd, Tensor? weight, int columns, "
      "float offset, ScalarType x_dtype, ScalarType residual_dtype, ScalarType bias_dtype, bool[4] output_mask) -> "
      "(Tensor dx, Tensor dresidual, Tensor dweight, Tensor dbias)",
      tags);
}

// The kernels find the backend by the tensors' device; a build without CUDA says so in its own sentence.
void register_kernels(torch::Library& library) {
  library.impl("rms_norm_forward", TORCH_FN(rms_forward));
  library.impl("rms_norm_backward", TORCH_FN(rms_backward));
  library.impl("layer_norm_forward", TORCH_FN(layer_forward));
  library.impl("layer_norm_backward", TORCH_FN(layer_backward));
}
TORCH_LIBRARY_IMPL(truenorm, CPU, library) { register_kernels(library); }
TORCH_LIBRARY_IMPL(truenorm, CUDA, library) { register_kernels(library); }

TORCH_LIBRARY_IMPL(truenorm, Meta, library) {
  library.impl("rms_norm_forward", TORCH_FN(rms_forward_meta));
  library.impl("rms_norm_backward", TORCH_FN(rms_backward_meta));
  library.impl("layer_norm_forward", TORCH_FN(layer_forward_meta));
  library.impl("layer_norm_backward", TORCH_FN(layer_backward_meta));
}

TORCH_LIBRARY_IMPL(truenorm, Autograd, library) {
  library.impl("rms_norm_forward", TORCH_FN(rms_forward_autograd));
  library.impl("rms_norm_backward", TORCH_FN(rms_backward_autograd));
  library.impl("layer_norm_forward", TORCH_FN(layer_forward_autograd));
  library.impl("layer_norm_backward", TORCH_FN(layer_backward_autograd));
}

}  // namespace truenorm::binding
