// The bodies of the four calls: check, size the scratch, run.
#include <cstdint>

#include "api/validate.hpp"
#include "cpu/isa.hpp"
#include "cpu/run.hpp"
#include "cuda/run.hpp"

namespace api = truenorm::api;
namespace cpu = truenorm::cpu;
namespace cuda = truenorm::cuda;
namespace spec = truenorm::spec;

namespace {

// Scratch may come at any address; the kernels want it on a cache line.
constexpr std::size_t kAlignment = 64;

void* align(void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::byte*>(p) + (kAlignment - address % kAlignment) % kAlignment;
}

// What a backward needs where it runs, room for alignment included; `anywhere`: wherever its operands may lie.
tn_status backward_scratch(const spec::BackwardCall& call, const tn_exec& where, bool anywhere, cuda::Scratch& needed,
                           tn_error* error) {
  if (where.device == TN_CUDA) {
    const char* const reason = cuda::backward_scratch(call, where.device_index, anywhere, needed);
    if (reason != nullptr) {
      return api::fail(error, TN_DEVICE_ERROR, "device_index: CUDA device %d failed: %s",
                       static_cast<int>(where.device_index), reason);
    }
  } else {
    needed.data = cpu::backward_scratch(call, tn_threads_count(where.threads));
    if (needed.data == cpu::kTooMuchScratch) {
      return api::fail(error, TN_UNSUPPORTED,
                       "dweight: got a hidden size of %lld; needs one whose scratch fits in memory",
                       static_cast<long long>(call.n));
    }
  }
  if (needed.data != 0) needed.data += kAlignment - 1;
  if (needed.counters != 0) needed.counters += kAlignment - 1;
  return TN_OK;
}

cuda::Where on_device(const tn_exec& where) { return {where.device_index, where.stream, where.programmatic != 0}; }

// CUDA kernels count a row's elements in 32 bits.
tn_status check_width(const tn_exec& where, std::int64_t n, tn_error* error) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (where.device != TN_CUDA || n <= kMost) return TN_OK;
  return api::fail(error, TN_UNSUPPORTED, "hidden size: got %lld; needs at most %lld on a CUDA device",
                   static_cast<long long>(n), static_cast<long long>(kMost));
}

tn_status check_room(const char* what, const void* data, std::size_t size, std::size_t needed, tn_error* error) {
  if (needed == 0) return TN_OK;
  if (data == nullptr) {
    return api::fail(error, TN_WORKSPACE_TOO_SMALL, "%s: got none; needs %zu bytes", what, needed);
  }
  if (size < needed) {
    return api::fail(error, TN_WORKSPACE_TOO_SMALL, "%s: got %zu bytes; needs %zu", what, size, needed);
  }
  return TN_OK;
}

tn_status check_workspace(const tn_workspace* workspace, const cuda::Scratch& needed, tn_error* error) {
  const tn_workspace given = workspace == nullptr ? tn_workspace{} : *workspace;
  if (const tn_status s = check_room("workspace", given.data, given.size, needed.data, error); s != TN_OK) return s;
  return check_room("workspace counters", given.counters, given.counters_size, needed.counters, error);
}

tn_status report(const cuda::Scratch& needed, tn_workspace* out, tn_error* error) {
  if (out == nullptr) return api::fail(error, TN_INVALID_ARGUMENT, "out: got NULL; needs a place for the sizes");
  out->size = needed.data;
  out->counters_size = needed.counters;
  return TN_OK;
}

tn_status launched(const tn_exec& where, const char* reason, tn_error* error) {
  if (reason == nullptr) return TN_OK;
  return api::fail(error, TN_DEVICE_ERROR, "the launch on CUDA device %d failed: %s",
                   static_cast<int>(where.device_index), reason);
}

}  // namespace

tn_status tn_forward_workspace(const tn_exec* exec, const tn_forward_args* args, tn_workspace* out,
                               tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::ForwardCall call;
  if (const tn_status s = api::check_forward(args, false, call, error); s != TN_OK) return s;
  if (const tn_status s = check_width(where, call.n, error); s != TN_OK) return s;
  return report({}, out, error);
}

tn_status tn_backward_workspace(const tn_exec* exec, const tn_backward_args* args, tn_workspace* out,
                                tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::BackwardCall call;
  if (const tn_status s = api::check_backward(args, false, call, error); s != TN_OK) return s;
  if (const tn_status s = check_width(where, call.n, error); s != TN_OK) return s;
  cuda::Scratch needed;
  if (const tn_status s = backward_scratch(call, where, true, needed, error); s != TN_OK) return s;
  return report(needed, out, error);
}

tn_status tn_forward(const tn_exec* exec, const tn_forward_args* args, const tn_workspace*, tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::ForwardCall call;
  if (const tn_status s = api::check_forward(args, true, call, error); s != TN_OK) return s;
  if (const tn_status s = check_width(where, call.n, error); s != TN_OK) return s;
  if (where.device == TN_CUDA) {
    return launched(where, cuda::run_forward(call, on_device(where)), error);
  }
  cpu::run_forward(call, *cpu::kernels_for(where.isa), where.threads);
  return TN_OK;
}

tn_status tn_backward(const tn_exec* exec, const tn_backward_args* args, const tn_workspace* workspace,
                      tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::BackwardCall call;
  if (const tn_status s = api::check_backward(args, true, call, error); s != TN_OK) return s;
  if (const tn_status s = check_width(where, call.n, error); s != TN_OK) return s;
  cuda::Scratch needed;
  if (const tn_status s = backward_scratch(call, where, false, needed, error); s != TN_OK) return s;
  if (const tn_status s = check_workspace(workspace, needed, error); s != TN_OK) return s;
  void* const data = needed.data == 0 ? nullptr : align(workspace->data);
  void* const counters = needed.counters == 0 ? nullptr : align(workspace->counters);
  if (where.device == TN_CUDA) {
    return launched(where, cuda::run_backward(call, on_device(where), data, counters), error);
  }
  cpu::run_backward(call, *cpu::kernels_for(where.isa), where.threads, data);
  return TN_OK;
}
