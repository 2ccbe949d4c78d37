#include "api/validate.hpp"

#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/checker.hpp"
#include "cpu/isa.hpp"
#include "cuda/run.hpp"
#include "spec/norm.hpp"

namespace truenorm::api {

namespace {

// The fields that both directions have.
template <class Args>
void check_options(Checker& check, const Args& args, std::uint32_t known_flags) noexcept {
  if (args.op != TN_RMS_NORM && args.op != TN_LAYER_NORM) {
    check.refuse("op: got %d; needs TN_RMS_NORM (1) or TN_LAYER_NORM (2)", static_cast<int>(args.op));
  }
  if (args.rounding != TN_ROUND_ONCE && args.rounding != TN_ROUND_LLAMA) {
    check.refuse("rounding: got %d; needs TN_ROUND_ONCE (0) or TN_ROUND_LLAMA (1)", static_cast<int>(args.rounding));
  }
  if (args.rounding == TN_ROUND_LLAMA && args.op == TN_LAYER_NORM) {
    check.refuse("rounding: got TN_ROUND_LLAMA with layer_norm; needs TN_ROUND_ONCE there");
  }
  if (!std::isfinite(args.offset)) {
    check.refuse("offset: got %g; needs a finite number", static_cast<double>(args.offset));
  }
  if ((args.in_place & ~known_flags) != 0) {
    check.refuse("in_place: got flags 0x%x; needs a combination of 0x%x in this direction",
                 static_cast<unsigned>(args.in_place), static_cast<unsigned>(known_flags));
  }
  if (args.mean.dtype != TN_DTYPE_NONE && args.op == TN_RMS_NORM) {
    check.refuse("mean: got a tensor with rms_norm, which has no mean; needs layer_norm, or none");
  }
}

tn_status check_struct(const char* name, size_t got, size_t needed, tn_error* error) noexcept {
  if (got == needed) return TN_OK;
  return fail(error, got > needed ? TN_UNSUPPORTED : TN_INVALID_ARGUMENT,
              "%s.struct_size: got %zu; needs sizeof the struct, %zu in version %s", name, got, needed, tn_version());
}

// `exec` as this version has it: fields that the caller's version does not know are zero.
tn_status read_exec(const tn_exec* exec, tn_exec& out, tn_error* error) noexcept {
  constexpr size_t kBeforeProgrammatic = offsetof(tn_exec, programmatic);
  const size_t size = exec->struct_size;
  if (size != kBeforeProgrammatic) {
    if (const tn_status s = check_struct("exec", size, sizeof out, error); s != TN_OK) return s;
  }
  std::memcpy(&out, exec, size);
  out.struct_size = sizeof out;
  return TN_OK;
}

bool absent(const tn_tensor& t) noexcept { return t.dtype == TN_DTYPE_NONE; }

}  // namespace

namespace {

tn_status check_cuda(const tn_exec& exec, tn_error* error) {
  if (!cuda::compiled()) {
    return fail(error, TN_NO_DEVICE, "device: got cuda; needs cpu, since this build has no CUDA backend");
  }
  const int count = cuda::device_count();
  if (count == 0) return fail(error, TN_NO_DEVICE, "device: got cuda; needs cpu, since no CUDA device can be used");
  if (exec.device_index < 0 || exec.device_index >= count) {
    return fail(error, TN_NO_DEVICE, "device_index: got %d; needs 0 to %d", static_cast<int>(exec.device_index),
                count - 1);
  }
  return TN_OK;
}

}  // namespace

tn_status check_exec(const tn_exec* given, tn_exec& out, tn_error* error) noexcept {
  out = {};
  out.struct_size = sizeof out;
  if (given == nullptr) return TN_OK;
  tn_exec exec{};
  if (const tn_status s = read_exec(given, exec, error); s != TN_OK) return s;
  if (exec.programmatic != 0 && exec.programmatic != 1) {
    return fail(error, TN_INVALID_ARGUMENT, "programmatic: got %" PRId64 "; needs 0 or 1", exec.programmatic);
  }
  if (exec.device == TN_CUDA) {
    if (const tn_status s = check_cuda(exec, error); s != TN_OK) return s;
    out = exec;
    return TN_OK;
  }
  if (exec.device != TN_CPU) {
    return fail(error, TN_INVALID_ARGUMENT, "device: got %d; needs TN_CPU (0) or TN_CUDA (1)",
                static_cast<int>(exec.device));
  }
  if (exec.device_index != 0) {
    return fail(error, TN_NO_DEVICE, "device_index: got %d; needs 0 for the CPU", static_cast<int>(exec.device_index));
  }
  if (exec.stream != nullptr) {
    return fail(error, TN_INVALID_ARGUMENT, "stream: got a pointer; needs NULL for the CPU");
  }
  if (exec.programmatic != 0) {
    return fail(error, TN_INVALID_ARGUMENT, "programmatic: got 1; needs 0 for the CPU");
  }
  if (exec.isa < TN_ISA_AUTO || exec.isa > TN_ISA_NEON) {
    return fail(error, TN_INVALID_ARGUMENT, "isa: got %d; needs one of tn_isa", static_cast<int>(exec.isa));
  }
  if (!cpu::isa_available(exec.isa)) {
    return fail(error, TN_UNSUPPORTED, "isa: got %s; needs one that this %s", tn_isa_name(exec.isa),
                cpu::isa_built(exec.isa) ? "machine has" : "build has code for");
  }
  out = exec;
  return TN_OK;
}

tn_status check_forward(const tn_forward_args* args, bool need_data, spec::ForwardCall& call,
                        tn_error* error) noexcept {
  if (args == nullptr) return fail(error, TN_INVALID_ARGUMENT, "args: got NULL; needs tn_forward_args");
  if (const tn_status s = check_struct("args", args->struct_size, sizeof *args, error); s != TN_OK) return s;
  const tn_forward_args& a = *args;
  Checker check(need_data, error);
  check_options(check, a, TN_Y_OVER_X | TN_Y_OVER_RESIDUAL | TN_RESIDUAL_OUT_OVER_X | TN_RESIDUAL_OUT_OVER_RESIDUAL);
  if (!(a.eps >= 0.0f) || !std::isfinite(a.eps)) {
    check.refuse("eps: got %g; needs a finite number, at least 0", static_cast<double>(a.eps));
  }
  Extent x{}, residual{}, weight{}, bias{}, y{}, s{}, mean{}, rstd{};
  check.matrix("x", a.x, true, call.x, x);
  check.matrix("residual", a.residual, false, call.residual, residual);
  check.vector("weight", a.weight, false, check.n(), "hidden size", call.weight, weight);
  check.vector("bias", a.bias, false, check.n(), "hidden size", call.bias, bias);
  check.matrix("y", a.y, false, call.y, y);
  check.matrix("residual_out", a.residual_out, false, call.s, s);
  check.statistic("mean", a.mean, false, call.mean, mean);
  check.statistic("rstd", a.rstd, false, call.rstd, rstd);
  if (!absent(a.residual_out) && absent(a.residual)) {
    check.refuse("residual_out: asked for without residual; needs residual, or no residual_out");
  }
  if (absent(a.y) && absent(a.residual_out) && absent(a.mean) && absent(a.rstd)) {
    check.refuse("y: no output is asked for; needs at least one of y, residual_out, mean, rstd");
  }

  const Named inputs[] = {
      {"x", a.x, x}, {"residual", a.residual, residual}, {"weight", a.weight, weight}, {"bias", a.bias, bias}};
  const Named outputs[] = {
      {"y", a.y, y}, {"residual_out", a.residual_out, s}, {"mean", a.mean, mean}, {"rstd", a.rstd, rstd}};
  const Permission permissions[] = {{0, 0, TN_Y_OVER_X, "TN_Y_OVER_X"},
                                    {0, 1, TN_Y_OVER_RESIDUAL, "TN_Y_OVER_RESIDUAL"},
                                    {1, 0, TN_RESIDUAL_OUT_OVER_X, "TN_RESIDUAL_OUT_OVER_X"},
                                    {1, 1, TN_RESIDUAL_OUT_OVER_RESIDUAL, "TN_RESIDUAL_OUT_OVER_RESIDUAL"}};
  check.memory(inputs, outputs, permissions, a.in_place);
  if (!check.ok()) return check.status();

  call.m = check.m();
  call.n = check.n();
  call.layer_norm = a.op == TN_LAYER_NORM;
  call.eps = a.eps;
  call.offset = spec::effective_offset(a.offset);
  call.xhat_type = call.x.type;
  call.round_xhat = a.rounding == TN_ROUND_LLAMA && call.x.type != spec::Type::f32;
  call.s_type = call.s.present ? call.s.type : call.residual.present ? call.residual.type : call.x.type;
  return TN_OK;
}

tn_status check_backward(const tn_backward_args* args, bool need_data, spec::BackwardCall& call,
                         tn_error* error) noexcept {
  if (args == nullptr) return fail(error, TN_INVALID_ARGUMENT, "args: got NULL; needs tn_backward_args");
  if (const tn_status s = check_struct("args", args->struct_size, sizeof *args, error); s != TN_OK) return s;
  const tn_backward_args& a = *args;
  Checker check(need_data, error);
  check_options(check, a, TN_DX_OVER_DY | TN_DX_OVER_DS | TN_DRESIDUAL_OVER_DS | TN_DX_OVER_X);
  if (a.x_dtype != TN_DTYPE_NONE && !is_type(a.x_dtype)) {
    check.refuse("x_dtype: got type %d; needs f32 (1), f16 (2), bf16 (3) or none (0)", static_cast<int>(a.x_dtype));
  }
  const bool has_dy = !absent(a.dy);
  if (!has_dy && absent(a.ds)) check.refuse("dy: got no tensor; needs one, or ds");
  Extent dy{}, ds{}, s{}, weight{}, mean{}, rstd{}, dx{}, dresidual{}, dweight{}, dbias{};
  float* saved_mean = nullptr;
  float* saved_rstd = nullptr;
  check.matrix("dy", a.dy, false, call.dy, dy);
  check.matrix("ds", a.ds, false, call.ds, ds);
  check.matrix("s", a.s, has_dy, call.s, s);
  check.vector("weight", a.weight, false, check.n(), "hidden size", call.weight, weight);
  check.statistic("mean", a.mean, has_dy && a.op == TN_LAYER_NORM, saved_mean, mean);
  check.statistic("rstd", a.rstd, has_dy, saved_rstd, rstd);
  check.matrix("dx", a.dx, false, call.dx, dx);
  check.matrix("dresidual", a.dresidual, false, call.dresidual, dresidual);
  check.vector("dweight", a.dweight, false, check.n(), "hidden size", call.dweight, dweight);
  check.vector("dbias", a.dbias, false, check.n(), "hidden size", call.dbias, dbias);
  if (!absent(a.dweight) && absent(a.weight)) {
    check.refuse("dweight: asked for without weight; needs the forward's weight");
  }
  if (absent(a.dx) && absent(a.dresidual) && absent(a.dweight) && absent(a.dbias)) {
    check.refuse("dx: no output is asked for; needs at least one of dx, dresidual, dweight, dbias");
  }

  const Named inputs[] = {{"dy", a.dy, dy},       {"ds", a.ds, ds},      {"s", a.s, s}, {"weight", a.weight, weight},
                          {"mean", a.mean, mean}, {"rstd", a.rstd, rstd}};
  const Named outputs[] = {{"dx", a.dx, dx},
                           {"dresidual", a.dresidual, dresidual},
                           {"dweight", a.dweight, dweight},
                           {"dbias", a.dbias, dbias}};
  const Permission permissions[] = {{0, 0, TN_DX_OVER_DY, "TN_DX_OVER_DY"},
                                    {0, 1, TN_DX_OVER_DS, "TN_DX_OVER_DS"},
                                    {0, 2, TN_DX_OVER_X, "TN_DX_OVER_X"},
                                    {1, 1, TN_DRESIDUAL_OVER_DS, "TN_DRESIDUAL_OVER_DS"}};
  check.memory(inputs, outputs, permissions, a.in_place);
  if (!check.ok()) return check.status();

  call.m = check.m();
  call.n = check.n();
  call.layer_norm = a.op == TN_LAYER_NORM;
  call.offset = spec::effective_offset(a.offset);
  call.mean = saved_mean;
  call.rstd = saved_rstd;
  const tn_dtype x_dtype = a.x_dtype != TN_DTYPE_NONE ? a.x_dtype : absent(a.s) ? TN_F32 : a.s.dtype;
  call.xhat_type = static_cast<spec::Type>(x_dtype);
  call.round_xhat = a.rounding == TN_ROUND_LLAMA && x_dtype != TN_F32;
  return TN_OK;
}

}  // namespace truenorm::api
