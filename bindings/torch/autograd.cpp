#include "autograd.hpp"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "ops.hpp"

namespace truenorm::binding {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

namespace {

// The keys of an ordinary tensor's calls. Autocast is none of our business: we compute in the type that arrives.
constexpr c10::DispatchKeySet kPlainKeys =
    c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::AutogradFunctionality,
                         c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::BackendSelect}) |
    c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::CUDABit}) |
    c10::autocast_dispatch_keyset;

// Not by the sets' own minus, which leaves the bits of the backends.
bool only_plain_keys(c10::DispatchKeySet keys) { return (keys.raw_repr() & ~kPlainKeys.raw_repr()) == 0; }

void refuse_tangent(const Norm& norm, const at::Tensor& t, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(t), "truenorm.", norm.name(), ": ", name,
                              ": got a forward-mode tangent; needs none, since only reverse mode is implemented");
}

}  // namespace

bool nobody_watches() {
  if (c10::impl::dispatch_mode_enabled() || at::impl::torch_function_mode_enabled()) return false;
  const auto tls = c10::impl::tls_local_dispatch_key_set();
  return only_plain_keys(tls.included_ - tls.excluded_);
}

bool is_plain(const at::Tensor& t) { return !t.defined() || only_plain_keys(t.key_set()); }

std::shared_ptr<NormBackward> NormBackward::record(const Norm& norm, const ForwardInputs& in) {
  refuse_tangent(norm, in.x, "x");
  refuse_tangent(norm, in.residual, "residual");
  refuse_tangent(norm, in.weight, "weight");
  refuse_tangent(norm, in.bias, "bias");
  if (!torch::autograd::compute_requires_grad(in.x, in.residual, in.weight, in.bias)) return nullptr;
  std::shared_ptr<NormBackward> node(new NormBackward, torch::autograd::deleteNode);
  node->norm_ = norm;
  node->set_next_edges(torch::autograd::collect_next_edges(in.x, in.residual, in.weight, in.bias));
  return node;
}

void NormBackward::finish(const ForwardInputs& in, const ForwardOutputs& out, bool through_operators) {
  const std::shared_ptr<torch::autograd::Node> self = shared_from_this();
  torch::autograd::set_history(out.y, self);
  // The sum depends on x and the residual alone: where neither needs a gradient, it needs none.
  s_is_output_ = in.residual.defined() && (should_compute_output(kX) || should_compute_output(kResidual));
  if (s_is_output_) torch::autograd::set_history(out.residual_out, self);
  x_dtype_ = in.x.scalar_type();
  if (in.residual.defined()) residual_dtype_ = in.residual.scalar_type();
  if (in.bias.defined()) bias_dtype_ = in.bias.scalar_type();
  through_operators_ = through_operators;

  s_ = SavedVariable(in.residual.defined() ? out.residual_out : in.x, s_is_output_);
  rstd_ = SavedVariable(out.rstd, false);
  if (out.mean.defined()) mean_ = SavedVariable(out.mean, false);
  if (in.weight.defined()) weight_ = SavedVariable(in.weight, false);
}

variable_list NormBackward::apply(variable_list&& gradients) {
  const std::lock_guard<std::mutex> lock(mutex_);
  variable_list result(kGradients);
  const WantedMask wanted = this->wanted();
  const Incoming incoming(gradients);
  const at::Tensor &dy = incoming.dy, &ds = incoming.ds;
  if (wanted == WantedMask{} || !incoming.any()) return result;

  const at::Tensor s = s_.unpack(s_is_output_ ? shared_from_this() : nullptr);
  const at::Tensor mean = norm_.layer_norm() ? mean_.unpack() : at::Tensor();
  const at::Tensor rstd = rstd_.unpack(), weight = weight_.unpack();
  const BackwardInputs in{dy, ds, s, mean, rstd, weight, x_dtype_, residual_dtype_, bias_dtype_};
  std::array<at::Tensor, kGradients> out;
  if (through_operators_ || !nobody_watches() || !is_plain(dy) || !is_plain(ds) || !is_plain(s) || !is_plain(weight)) {
    out = backward_operator(norm_, in, wanted);
  } else {
    refuse_tangent(norm_, dy, "dy");
    refuse_tangent(norm_, ds, "ds");
    out = backward(norm_, in, wanted);
    refuse_double_backward(norm_, {dy, ds, s, weight}, out);
  }
  std::move(out.begin(), out.end(), result.begin());
  return result;
}

WantedMask NormBackward::wanted() const {
  WantedMask wanted{};
  for (std::size_t i = 0; i < kGradients; ++i) wanted[i] = task_should_compute_output(i);
  return wanted;
}

void NormBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  s_.reset_data();
  mean_.reset_data();
  rstd_.reset_data();
  weight_.reset_data();
}

void refuse_double_backward(const Norm& norm, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) {
  if (!at::GradMode::is_enabled()) return;
  variable_list differentiable;
  for (const at::Tensor& t : inputs) {
    if (t.defined() && t.requires_grad()) differentiable.push_back(t);
  }
  if (differentiable.empty()) return;
  const auto refusal = std::make_shared<torch::autograd::Error>(
      std::string("truenorm.") + norm.name() + ": a second derivative was asked for, which is not implemented",
      torch::autograd::collect_next_edges(differentiable));
  for (const at::Tensor& t : outputs) {
    if (t.defined()) torch::autograd::set_history(t, refusal);
  }
}

}  // namespace truenorm::binding
