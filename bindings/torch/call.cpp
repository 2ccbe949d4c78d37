#include "call.hpp"

#include <c10/core/DeviceGuard.h>

#include <memory>

#include "scratch.hpp"
#include "tensors.hpp"
#include "threads.hpp"
#ifdef TRUENORM_TORCH_WITH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace truenorm::binding {

namespace {

// Where a call runs: x's device, its current stream, and on the CPU the shared threads.
struct Place {
  explicit Place(const at::Device& device) {
    exec.struct_size = sizeof exec;
#ifdef TRUENORM_TORCH_WITH_CUDA
    if (device.is_cuda()) {
      guard.reset_device(device);
      exec.device = TN_CUDA;
      exec.device_index = device.index();
      exec.stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
      return;
    }
#else
    (void)device;
#endif
    threads = thread_pool();
    exec.threads = threads.get();
  }

  c10::OptionalDeviceGuard guard;
  std::shared_ptr<tn_threads> threads;
  tn_exec exec{};
};

void raise_if_failed(const Norm& norm, tn_status status, const tn_error& error) {
  TORCH_CHECK(status == TN_OK, "truenorm.", norm.name(), ": ", error.message);
}

// `ask` is a tn_*_workspace, `run` the call it belongs to. Small calls, whose cost is the host's, need no scratch, so
// that the call is tried without: it refuses before it does anything.
template <class Args, class Ask, class Run>
void launch(const Norm& norm, const Args& args, const at::Device& device, Ask ask, Run run) {
  const Place place(device);
  tn_error error;
  tn_status status = run(&place.exec, &args, nullptr, &error);
  if (status == TN_WORKSPACE_TOO_SMALL) {
    tn_workspace needed{};
    raise_if_failed(norm, ask(&place.exec, &args, &needed, &error), error);
    const Scratch scratch = make_scratch(needed, device, place.exec.stream);
    status = run(&place.exec, &args, &scratch.workspace, &error);
  }
  raise_if_failed(norm, status, error);
}

void check_device(const Norm& norm, const at::Tensor& x, const at::Tensor& t, const char* name) {
  TORCH_CHECK(!t.defined() || t.device() == x.device(), "truenorm.", norm.name(), ": ", name, ": got a tensor on ",
              t.device(), "; needs x's device, ", x.device());
}

// A vector with the shape of x's columns.
void check_columns(const Norm& norm, const at::Tensor& x, const at::Tensor& t, const char* name) {
  if (!t.defined()) return;
  check_device(norm, x, t, name);
  const auto columns = x.sym_sizes().slice(static_cast<std::size_t>(x.dim() - norm.columns));
  TORCH_CHECK(t.dim() == norm.columns, "truenorm.", norm.name(), ": ", name, ": got shape ", t.sym_sizes(), "; needs ",
              columns);
  for (std::size_t d = 0; d < columns.size(); ++d) {
    TORCH_CHECK(t.sym_size(static_cast<std::int64_t>(d)) == columns[d], "truenorm.", norm.name(), ": ", name,
                ": got shape ", t.sym_sizes(), "; needs ", columns);
  }
}

at::IntArrayRef batch_sizes(const Norm& norm, const at::Tensor& t) {
  return t.sizes().slice(0, static_cast<std::size_t>(t.dim() - norm.columns));
}

}  // namespace

void check_dimensions(const Norm& norm, const at::Tensor& t, const char* name) {
  TORCH_CHECK(t.dim() >= norm.columns && norm.columns >= 1, "truenorm.", norm.name(), ": ", name, ": got ", t.dim(),
              " dimensions; needs at least ", std::max<std::int64_t>(norm.columns, 1));
}

void check_forward(const Norm& norm, const ForwardInputs& in) {
  const at::Tensor& x = in.x;
  check_dimensions(norm, x, "x");
  supported_dtype(x.scalar_type(), norm.name(), "x");
  supported_dtype(in.out_dtype, norm.name(), "out_dtype");
  check_columns(norm, x, in.weight, "weight");
  check_columns(norm, x, in.bias, "bias");
  if (!in.residual.defined()) return;
  supported_dtype(in.residual.scalar_type(), norm.name(), "residual");
  supported_dtype(in.residual_dtype, norm.name(), "residual_dtype");
  check_device(norm, x, in.residual, "residual");
  TORCH_CHECK(x.sym_sizes() == in.residual.sym_sizes(), "truenorm.", norm.name(), ": residual: got shape ",
              in.residual.sym_sizes(), "; needs x's, ", x.sym_sizes());
}

ForwardOutputs forward(const Norm& norm, const ForwardInputs& in, bool statistics) {
  check_forward(norm, in);
  const at::Tensor& x = in.x;
  check_supported(x.device(), norm.name());
  const char* const function = norm.name();
  const Input x_in = input_matrix(x, norm.columns, function, "x");
  const Input residual = input_matrix(in.residual, norm.columns, function, "residual");
  const Input weight = input_vector(in.weight, function, "weight"), bias = input_vector(in.bias, function, "bias");

  ForwardOutputs out;
  out.y = new_dense(x.sizes(), in.out_dtype, x.device());
  if (in.residual.defined()) out.residual_out = new_dense(x.sizes(), in.residual_dtype, x.device());
  if (statistics) {
    out.rstd = new_dense(batch_sizes(norm, x), at::kFloat, x.device());
    if (norm.layer_norm()) out.mean = new_dense(batch_sizes(norm, x), at::kFloat, x.device());
  }

  tn_forward_args args{};
  args.struct_size = sizeof args;
  args.op = norm.op;
  args.rounding = norm.rounding;
  args.eps = static_cast<float>(norm.eps);
  args.offset = static_cast<float>(norm.offset);
  args.x = x_in.view;
  args.residual = residual.view;
  args.weight = weight.view;
  args.bias = bias.view;
  args.y = output_matrix(out.y, norm.columns);
  args.residual_out = output_matrix(out.residual_out, norm.columns);
  args.mean = output_vector(out.mean);
  args.rstd = output_vector(out.rstd);
  launch(norm, args, x.device(), tn_forward_workspace, tn_forward);
  return out;
}

std::array<at::Tensor, kGradients> backward(const Norm& norm, const BackwardInputs& in, const WantedMask& wanted) {
  const at::Tensor& incoming = in.dy.defined() ? in.dy : in.ds;
  TORCH_CHECK(incoming.defined(), "truenorm.", norm.name(), ": dy: got no tensor; needs one, or ds");
  check_device(norm, incoming, in.s, "s");
  check_device(norm, incoming, in.weight, "weight");
  const auto same_shape = [&](const at::Tensor& t, const char* name) {
    TORCH_CHECK(!t.defined() || t.sizes() == incoming.sizes(), "truenorm.", norm.name(), ": ", name, ": got shape ",
                t.sizes(), "; needs the gradient's, ", incoming.sizes());
  };
  same_shape(in.s, "s");
  same_shape(in.ds, "ds");
  check_dimensions(norm, incoming, "dy");
  const char* const function = norm.name();
  check_supported(incoming.device(), function);
  if (wanted[kX]) supported_dtype(in.x_dtype, function, "x_dtype");
  if (wanted[kResidual]) supported_dtype(in.residual_dtype, function, "residual_dtype");
  if (wanted[kBias]) supported_dtype(in.bias_dtype, function, "bias_dtype");
  const Input dy = input_matrix(in.dy, norm.columns, function, "dy");
  const Input ds = input_matrix(in.ds, norm.columns, function, "ds");
  const Input s = input_matrix(in.s, norm.columns, function, "s");
  const Input weight = input_vector(in.weight, function, "weight");
  const Input mean = input_vector(in.mean, function, "mean"), rstd = input_vector(in.rstd, function, "rstd");

  std::array<at::Tensor, kGradients> out;
  const auto columns = incoming.sizes().slice(static_cast<std::size_t>(incoming.dim() - norm.columns));
  const auto make = [&](Wanted which, at::IntArrayRef sizes, at::ScalarType type) {
    if (wanted[which]) out[which] = new_dense(sizes, type, incoming.device());
  };
  make(kX, incoming.sizes(), in.x_dtype);
  make(kResidual, incoming.sizes(), in.residual_dtype);
  if (in.weight.defined()) make(kWeight, columns, in.weight.scalar_type());
  make(kBias, columns, in.bias_dtype);

  tn_backward_args args{};
  args.struct_size = sizeof args;
  args.op = norm.op;
  args.rounding = norm.rounding;
  args.x_dtype = dtype_of(in.x_dtype);
  args.offset = static_cast<float>(norm.offset);
  args.dy = dy.view;
  args.ds = ds.view;
  args.s = s.view;
  args.weight = weight.view;
  args.mean = mean.view;
  args.rstd = rstd.view;
  args.dx = output_matrix(out[kX], norm.columns);
  args.dresidual = output_matrix(out[kResidual], norm.columns);
  args.dweight = output_vector(out[kWeight]);
  args.dbias = output_vector(out[kBias]);
  launch(norm, args, incoming.device(), tn_backward_workspace, tn_backward);
  return out;
}

}  // namespace truenorm::binding
