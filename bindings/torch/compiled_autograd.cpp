// The gradient's node under compiled autograd, which runs a whole backward as one traced graph: the node puts a call of
// the backward operator there, in place of running it.
#include "autograd.hpp"

#ifdef TRUENORM_TORCH_COMPILED_AUTOGRAD

#include <torch/csrc/dynamo/compiled_autograd.h>

#include "ops.hpp"

namespace truenorm::binding {

namespace compiled = torch::dynamo::autograd;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// All that the graph depends on but for the tensors, which are its inputs: where these are equal, the graph is used
// again.
void NormBackward::compiled_args(compiled::CompiledNodeArgs& args) const {
  args.collect(static_cast<std::int64_t>(norm_.op));
  args.collect(static_cast<std::int64_t>(norm_.rounding));
  args.collect(norm_.offset);
  args.collect(norm_.columns);
  for (const at::ScalarType type : {x_dtype_, residual_dtype_, bias_dtype_}) args.collect(type);
  for (std::size_t i = 0; i < kGradients; ++i) args.collect(task_should_compute_output(i));
  args.collect(s_, s_is_output_);
  for (const SavedVariable* saved : {&mean_, &rstd_, &weight_}) args.collect(*saved, false);
}

variable_list NormBackward::apply_with_saved(const variable_list& gradients, compiled::SwapSavedVariables& swap) {
  compiled::PackedArgs kept;
  for (SavedVariable* saved : {&s_, &mean_, &rstd_, &weight_}) {
    swap.before(*saved);  // the graph's stand-in for the tensor
    kept.pack(saved->unpack());
    swap.after(*saved);
  }
  const auto run = [norm = norm_, x_dtype = x_dtype_, residual_dtype = residual_dtype_, bias_dtype = bias_dtype_,
                    wanted = wanted()](const variable_list& given, const std::vector<c10::IValue>& tensors) {
    variable_list result(kGradients);
    const Incoming incoming(given);
    if (!incoming.any()) return result;
    const at::Tensor s = tensors[0].toTensor(), mean = tensors[1].toTensor(), rstd = tensors[2].toTensor(),
                     weight = tensors[3].toTensor();
    auto out = backward_operator(
        norm, {incoming.dy, incoming.ds, s, mean, rstd, weight, x_dtype, residual_dtype, bias_dtype}, wanted);
    std::move(out.begin(), out.end(), result.begin());
    return result;
  };
  // The function holds the constants, so that each graph has one of its own: a "custom" one, whose name is made unique.
  const auto& python = compiled::getPyCompilerInterface();
  const std::vector<at::TypePtr> types(4, at::TensorType::get());
  const std::string function = python->bind_function(swap.get_py_compiler(), name(), run, types, true);
  return python->call_function(swap.get_py_compiler(), "apply_functional", function, gradients, kept.vec(),
                               compiled::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
                                   compiled::get_input_metadata(next_edges())));
}

}  // namespace truenorm::binding

#endif
