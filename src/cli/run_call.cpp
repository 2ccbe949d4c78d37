#include "cli/run_call.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace truenorm::cli {
namespace {

const HostTensor kAbsent;

tn_forward_args forward_inputs(const RunSettings& settings, const RunInputs& in) {
  tn_forward_args args{};
  args.struct_size = sizeof(args);
  args.op = settings.op;
  args.rounding = settings.rounding;
  args.eps = settings.eps;
  args.offset = settings.offset;
  args.x = in.x.matrix(in.n);
  args.residual = in.residual.matrix(in.n);
  args.weight = in.weight.vector();
  args.bias = in.bias.vector();
  return args;
}

tn_dtype first_of(std::initializer_list<tn_dtype> dtypes) {
  for (const tn_dtype dtype : dtypes) {
    if (dtype != TN_DTYPE_NONE) return dtype;
  }
  return TN_DTYPE_NONE;
}

}  // namespace

std::vector<std::string> possible_outputs(const RunSettings& settings) {
  if (settings.backward) return {"dx", "dresidual", "dweight", "dbias"};
  if (settings.op == TN_LAYER_NORM) return {"y", "s", "mean", "rstd"};
  return {"y", "s", "rstd"};
}

std::vector<std::string> default_outputs(const RunOptions& options, const RunSettings& settings) {
  std::vector<std::string> names = possible_outputs(settings);
  const auto drop = [&](std::string_view name, bool when) {
    if (when) std::erase(names, name);
  };
  drop("s", options.residual.empty());
  drop("dresidual", options.residual.empty() && options.ds.empty());
  drop("dweight", options.weight.empty());
  drop("dbias", options.bias.empty());
  return names;
}

RunCall::RunCall(const RunSettings& settings, RunInputs& inputs, const std::vector<std::string>& outputs,
                 const Executor& executor)
    : backward_(settings.backward), eps_(settings.eps), executor_(executor), wanted_(outputs) {
  outputs_.reserve(outputs.size());
  if (backward_) {
    const bool x_is_s = !inputs.residual;
    const tn_dtype x_dtype = x_is_s ? first_of({settings.dtype, inputs.x.dtype()}) : inputs.x.dtype();
    if (!inputs.rstd) compute_statistics(settings, inputs);
    prepare_backward(settings, inputs, x_dtype);
    backward_call_.emplace(executor_.exec(), backward_args_);
  } else {
    prepare_forward(settings, inputs);
    forward_call_.emplace(executor_.exec(), forward_args_);
  }
  for (const HostTensor* tensor : {&inputs.x, &inputs.residual, &inputs.weight, &inputs.bias, &inputs.dy, &inputs.ds,
                                   &inputs.mean, &inputs.rstd}) {
    if (*tensor) reads_.push_back(tensor->bytes().size());
  }
}

void RunCall::compute_statistics(const RunSettings& settings, RunInputs& inputs) {
  tn_forward_args args = forward_inputs(settings, inputs);
  HostTensor s;
  if (inputs.residual) s = HostTensor(inputs.residual.dtype(), inputs.x.shape(), inputs.x.count());
  inputs.rstd = HostTensor(TN_F32, inputs.leading, inputs.m);
  if (settings.op == TN_LAYER_NORM) inputs.mean = HostTensor(TN_F32, inputs.leading, inputs.m);
  args.residual_out = s.matrix(inputs.n);
  args.mean = inputs.mean.vector();
  args.rstd = inputs.rstd.vector();
  LibraryCall(executor_.exec(), args).run();
  computed_statistics_ = true;
  if (s) {
    inputs.x = std::move(s);
    inputs.residual = HostTensor();
  }
}

void RunCall::prepare_forward(const RunSettings& settings, const RunInputs& in) {
  forward_args_ = forward_inputs(settings, in);
  forward_args_.y = place("y", first_of({settings.out_dtype, in.x.dtype()}), in.matrix_shape()).matrix(in.n);
  forward_args_.residual_out = place("s", in.s_dtype(), in.matrix_shape()).matrix(in.n);
  forward_args_.mean = place("mean", TN_F32, in.leading).vector();
  forward_args_.rstd = place("rstd", TN_F32, in.leading).vector();
}

void RunCall::prepare_backward(const RunSettings& settings, const RunInputs& in, tn_dtype x_dtype) {
  tn_backward_args& args = backward_args_;
  args.struct_size = sizeof(args);
  args.op = settings.op;
  args.rounding = settings.rounding;
  args.x_dtype = x_dtype;
  args.offset = settings.offset;
  args.dy = in.dy.matrix(in.n);
  args.ds = in.ds.matrix(in.n);
  args.s = in.x.matrix(in.n);
  args.weight = in.weight.vector();
  args.mean = in.mean.vector();
  args.rstd = in.rstd.vector();
  const auto parameter = [&](const HostTensor& tensor) {
    return first_of({tensor.dtype(), settings.weight_dtype, x_dtype});
  };
  args.dx = place("dx", first_of({settings.out_dtype, x_dtype}), in.matrix_shape()).matrix(in.n);
  args.dresidual = place("dresidual", in.x.dtype(), in.matrix_shape()).matrix(in.n);
  args.dweight = place("dweight", parameter(in.weight), in.normalized).vector();
  args.dbias = place("dbias", parameter(in.bias), in.normalized).vector();
}

const HostTensor& RunCall::place(const std::string& name, tn_dtype dtype, std::vector<int64_t> shape) {
  if (std::find(wanted_.begin(), wanted_.end(), name) == wanted_.end()) return kAbsent;
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  outputs_.push_back({name, HostTensor(dtype, std::move(shape), count)});
  return outputs_.back().tensor;
}

void RunCall::run() { backward_ ? backward_call_->run() : forward_call_->run(); }

void RunCall::enqueue(void* stream) { backward_ ? backward_call_->enqueue(stream) : forward_call_->enqueue(stream); }

std::vector<OutputTensor> RunCall::outputs() const {
  std::vector<OutputTensor> views;
  for (const Output& output : outputs_) {
    views.push_back({output.name, output.tensor.dtype(), output.tensor.shape(), output.tensor.bytes()});
  }
  return views;
}

RunCall::ColumnSums RunCall::column_sums() const {
  ColumnSums sums;
  tn_backward_args args = backward_args_;
  args.dx = {};
  args.dresidual = {};
  const auto redirect = [](tn_tensor& output, std::vector<float>& memory) {
    if (output.dtype == TN_DTYPE_NONE) return;
    memory.resize(static_cast<size_t>(output.shape[0]));
    output = tn_vector(memory.data(), TN_F32, output.shape[0]);
  };
  redirect(args.dweight, sums.dweight);
  redirect(args.dbias, sums.dbias);
  LibraryCall(executor_.exec(), args).run();
  return sums;
}

std::vector<size_t> RunCall::writes() const {
  std::vector<size_t> sizes;
  for (const Output& output : outputs_) sizes.push_back(output.tensor.bytes().size());
  return sizes;
}

}  // namespace truenorm::cli
