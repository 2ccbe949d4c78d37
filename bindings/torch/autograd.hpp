// The gradient's node in autograd's graph.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/version.h>

#include <memory>

#include "call.hpp"

// PyTorch's interface for it has no promise of stability: it is used as torch 2.11 has it. Before, PyTorch refuses
// there.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
#define TRUENORM_TORCH_COMPILED_AUTOGRAD
#endif

namespace truenorm::binding {

// Written by hand, not with torch::autograd::Function: a call costs a quarter less (docs/decisions.md).
class NormBackward final : public torch::autograd::Node {
 public:
  // The node for a forward with these inputs; null where nothing that needs a gradient went in. Throws where an input
  // carries a forward-mode tangent, which would be lost.
  static std::shared_ptr<NormBackward> record(const Norm& norm, const ForwardInputs& in);

  // Makes the outputs the node's, and keeps what the backward reads. `through_operators`: its call is to be seen by the
  // dispatcher (tracing, transforms, subclasses).
  void finish(const ForwardInputs& in, const ForwardOutputs& out, bool through_operators);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;
#ifdef TRUENORM_TORCH_COMPILED_AUTOGRAD
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& gradients,
                                                  torch::dynamo::autograd::SwapSavedVariables& swap) override;
#endif
  std::string name() const override { return norm_.layer_norm() ? "LayerNormBackward" : "RmsNormBackward"; }

 private:
  WantedMask wanted() const;  // of the backward that is running

  Norm norm_;
  at::ScalarType x_dtype_ = at::kFloat, residual_dtype_ = at::kFloat, bias_dtype_ = at::kFloat;
  bool through_operators_ = false;
  bool s_is_output_ = false;
  torch::autograd::SavedVariable s_, mean_, rstd_, weight_;
};

// The gradients that came in: dy and, of a node with two outputs, ds; undefined where there is none.
struct Incoming {
  explicit Incoming(const torch::autograd::variable_list& gradients)
      : dy(gradients[0]), ds(gradients.size() > 1 ? gradients[1] : none) {}
  bool any() const { return dy.defined() || ds.defined(); }

  const at::Tensor none, &dy, &ds;
};

// Makes a second differentiation an error in place of a wrong gradient: `outputs` of a backward whose inputs (defined
// ones) need gradients themselves.
void refuse_double_backward(const Norm& norm, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs);

// Whether `t` is an ordinary tensor here and now, which the kernels may be called on directly: no subclass, transform,
// mode or tracer wants to see the operator. An undefined one is.
bool is_plain(const at::Tensor& t);
// Whether nothing on this thread wants to see every operator.
bool nobody_watches();

}  // namespace truenorm::binding
