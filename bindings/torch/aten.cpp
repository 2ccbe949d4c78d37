#include "aten.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "call.hpp"
#include "tensors.hpp"

namespace truenorm::binding {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// ---- The kernels that were there before

struct Original {
  c10::OperatorHandle op;
  c10::SafeKernelFunction kernel;
};
using Originals = std::map<std::pair<std::string, c10::DispatchKey>, Original>;

// Those of every device, found once, before the first call is routed: calls under way read it without a lock.
const Originals& originals() {
  static const Originals* instance = [] {
    auto* found = new Originals;
    for (const char* name :
         {"native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"}) {
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), "");
      for (const c10::DispatchKey key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
        if (!op.hasComputedKernelForDispatchKey(key)) continue;
        found->try_emplace({name, key}, Original{op, op.getComputedKernelForDispatchKey(key)});
      }
    }
    return found;
  }();
  return *instance;
}

// Whether aten::`name` has a kernel at `key`.
bool has_original(const std::string& name, c10::DispatchKey key) { return originals().count({name, key}) != 0; }

c10::DispatchKey key_of(c10::DeviceType device) {
  return device == c10::DeviceType::CUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
}

template <class... Arguments>
torch::jit::Stack call_original(const char* name, c10::DispatchKey key, const Arguments&... arguments) {
  const Original& original = originals().at({name, key});
  torch::jit::Stack stack;
  (stack.emplace_back(arguments), ...);
  original.kernel.callBoxed(original.op, c10::DispatchKeySet(key), &stack);
  return stack;
}

Tensor tensor_at(const torch::jit::Stack& stack, std::size_t i) {
  return stack[i].isTensor() ? stack[i].toTensor() : Tensor();
}

// ---- What ours serve

Tensor or_undefined(const MaybeTensor& t) { return t.value_or(Tensor()); }

bool of_our_types(const Tensor& t) { return !t.defined() || dtype_of(t.scalar_type()) != TN_DTYPE_NONE; }

// Anything that is wrong or unusual is left to the originals, which say so in their own words.
bool serves(const Tensor& x, at::IntArrayRef shape, const Tensor& weight, const Tensor& bias) {
  const auto columns = static_cast<std::int64_t>(shape.size());
  if (columns < 1 || x.dim() < columns || c10::multiply_integers(shape) == 0) return false;
  if (x.sizes().slice(static_cast<std::size_t>(x.dim() - columns)) != shape) return false;
  for (const Tensor* t : {&weight, &bias}) {
    if (t->defined() && (t->sizes() != shape || t->device() != x.device())) return false;
  }
  return of_our_types(x) && of_our_types(weight) && of_our_types(bias);
}

bool good_eps(double eps) { return eps >= 0 && std::isfinite(static_cast<float>(eps)); }

// Statistics as ours make them; with others the forward was not ours.
bool our_statistics(const Tensor& x, std::int64_t columns, const Tensor& statistic) {
  if (!statistic.defined() || statistic.scalar_type() != at::kFloat || !statistic.is_contiguous()) return false;
  const auto batch = x.sizes().slice(0, static_cast<std::size_t>(x.dim() - columns));
  return statistic.numel() == c10::multiply_integers(batch);
}

// aten keeps a 1 for each normalised dimension.
Tensor as_aten(const Tensor& statistic, std::size_t columns) {
  std::vector<std::int64_t> sizes(statistic.sizes().vec());
  sizes.insert(sizes.end(), columns, 1);
  return statistic.view(sizes);
}

Norm layer(std::size_t columns, double eps) {
  return {TN_LAYER_NORM, TN_ROUND_ONCE, eps, 0, static_cast<std::int64_t>(columns)};
}
Norm rms(std::size_t columns, double eps) {
  return {TN_RMS_NORM, TN_ROUND_ONCE, eps, 0, static_cast<std::int64_t>(columns)};
}

ForwardOutputs run_forward(const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor none;
  return forward(norm, {x, none, weight, bias, x.scalar_type(), x.scalar_type()}, true);
}

// ---- The kernels that take their place

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& x, at::IntArrayRef shape, const MaybeTensor& weight,
                                                     const MaybeTensor& bias, double eps) {
  const Tensor w = or_undefined(weight), b = or_undefined(bias);
  if (!serves(x, shape, w, b) || !good_eps(eps)) {
    const auto out = call_original("native_layer_norm", key_of(x.device().type()), x, shape, weight, bias, eps);
    return {tensor_at(out, 0), tensor_at(out, 1), tensor_at(out, 2)};
  }
  const ForwardOutputs out = run_forward(layer(shape.size(), eps), x, w, b);
  return {out.y, as_aten(out.mean, shape.size()), as_aten(out.rstd, shape.size())};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor& dy, const Tensor& x, at::IntArrayRef shape,
                                                              const Tensor& mean, const Tensor& rstd,
                                                              const MaybeTensor& weight, const MaybeTensor& bias,
                                                              std::array<bool, 3> wanted) {
  const Tensor w = or_undefined(weight), b = or_undefined(bias);
  const auto columns = static_cast<std::int64_t>(shape.size());
  const bool any = wanted[0] || (wanted[1] && w.defined()) || wanted[2];
  if (!any || !dy.defined() || !of_our_types(dy) || dy.sizes() != x.sizes() || !serves(x, shape, w, b) ||
      !our_statistics(x, columns, mean) || !our_statistics(x, columns, rstd)) {
    const auto out = call_original("native_layer_norm_backward", key_of(x.device().type()), dy, x, shape, mean, rstd,
                                   weight, bias, wanted);
    return {tensor_at(out, 0), tensor_at(out, 1), tensor_at(out, 2)};
  }
  const Tensor none;
  const at::ScalarType type = x.scalar_type();
  const auto out =
      backward(layer(shape.size(), 0), {dy, none, x, mean, rstd, w, type, type, b.defined() ? b.scalar_type() : type},
               {wanted[0], false, wanted[1], wanted[2]});
  return {out[kX], out[kWeight], out[kBias]};
}

// Without an eps, aten takes FP32's for 16-bit rows too.
double eps_or_default(std::optional<double> eps) { return eps.value_or(std::numeric_limits<float>::epsilon()); }

std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& x, at::IntArrayRef shape, const MaybeTensor& weight,
                                          std::optional<double> eps) {
  const Tensor w = or_undefined(weight);
  if (!serves(x, shape, w, Tensor()) || !good_eps(eps_or_default(eps))) {
    const auto out = call_original("_fused_rms_norm", key_of(x.device().type()), x, shape, weight, eps);
    return {tensor_at(out, 0), tensor_at(out, 1)};
  }
  const ForwardOutputs out = run_forward(rms(shape.size(), eps_or_default(eps)), x, w, Tensor());
  return {out.y, as_aten(out.rstd, shape.size())};
}

std::tuple<Tensor, Tensor> fused_rms_norm_backward(const Tensor& dy, const Tensor& x, at::IntArrayRef shape,
                                                   const Tensor& rstd, const MaybeTensor& weight,
                                                   std::array<bool, 2> wanted) {
  const Tensor w = or_undefined(weight);
  const bool any = wanted[0] || (wanted[1] && w.defined());
  if (!any || !dy.defined() || !of_our_types(dy) || dy.sizes() != x.sizes() || !serves(x, shape, w, Tensor()) ||
      !our_statistics(x, static_cast<std::int64_t>(shape.size()), rstd)) {
    const auto out =
        call_original("_fused_rms_norm_backward", key_of(x.device().type()), dy, x, shape, rstd, weight, wanted);
    return {tensor_at(out, 0), tensor_at(out, 1)};
  }
  const Tensor none;
  const at::ScalarType type = x.scalar_type();
  const auto out = backward(rms(shape.size(), 0), {dy, none, x, none, rstd, w, type, type, type},
                            {wanted[0], false, wanted[1], false});
  return {out[kX], out[kWeight]};
}

// ---- Putting them there

struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

struct Route {
  std::unique_ptr<torch::Library> library;
};

std::mutex& mutex() {
  static auto* instance = new std::mutex;
  return *instance;
}

std::map<c10::DispatchKey, Route>& routes() {
  static auto* instance = new std::map<c10::DispatchKey, Route>;
  return *instance;
}

}  // namespace

void route_aten(c10::DeviceType device, bool on) {
  const std::lock_guard lock(mutex());
  const c10::DispatchKey key = key_of(device);
  Route& route = routes()[key];
  if (on == (route.library != nullptr)) return;
  if (!on) {
    route.library.reset();
    return;
  }
  NoWarnings handler;  // that kernels are replaced is the purpose
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  const bool layer_norm = has_original("native_layer_norm", key) && has_original("native_layer_norm_backward", key);
  // Where there is no backward kernel (the CPU), rms_norm is composed of elementary operators and differentiated as
  // such.
  const bool rms_norm = has_original("_fused_rms_norm_backward", key) && has_original("_fused_rms_norm", key);
  if (layer_norm) {
    library->impl("native_layer_norm", TORCH_FN(native_layer_norm));
    library->impl("native_layer_norm_backward", TORCH_FN(native_layer_norm_backward));
  }
  if (rms_norm) {
    library->impl("_fused_rms_norm", TORCH_FN(fused_rms_norm));
    library->impl("_fused_rms_norm_backward", TORCH_FN(fused_rms_norm_backward));
  }
  route.library = std::move(library);
}

bool aten_routed(c10::DeviceType device) {
  const std::lock_guard lock(mutex());
  return routes()[key_of(device)].library != nullptr;
}

}  // namespace truenorm::binding
