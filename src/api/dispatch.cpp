// The bodies of the four calls: check, size the scratch, run.
#include <cstdint>

#include "api/validate.hpp"
#include "cpu/isa.hpp"
#include "cpu/run.hpp"

namespace api = truenorm::api;
namespace cpu = truenorm::cpu;
namespace spec = truenorm::spec;

namespace {

// Scratch may come at any address; the kernels want it on a cache line.
constexpr std::size_t kAlignment = 64;

void* align(void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::byte*>(p) + (kAlignment - address % kAlignment) % kAlignment;
}

tn_status check_workspace(const tn_workspace* workspace, std::size_t needed, tn_error* error) {
  if (needed == 0) return TN_OK;
  if (workspace == nullptr || workspace->data == nullptr) {
    return api::fail(error, TN_WORKSPACE_TOO_SMALL, "workspace: got none; needs %zu bytes", needed);
  }
  if (workspace->size < needed) {
    return api::fail(error, TN_WORKSPACE_TOO_SMALL, "workspace: got %zu bytes; needs %zu", workspace->size, needed);
  }
  return TN_OK;
}

// What the backward needs, alignment included.
tn_status backward_scratch(const spec::BackwardCall& call, const tn_exec& where, std::size_t& bytes, tn_error* error) {
  bytes = cpu::backward_scratch(call, tn_threads_count(where.threads));
  if (bytes == cpu::kTooMuchScratch) {
    return api::fail(error, TN_UNSUPPORTED,
                     "dweight: got a hidden size of %lld; needs one whose scratch fits in memory",
                     static_cast<long long>(call.n));
  }
  if (bytes != 0) bytes += kAlignment - 1;
  return TN_OK;
}

tn_status report_size(std::size_t bytes, tn_workspace* out, tn_error* error) {
  if (out == nullptr) return api::fail(error, TN_INVALID_ARGUMENT, "out: got NULL; needs a place for the sizes");
  out->size = bytes;
  out->counters_size = 0;
  return TN_OK;
}

}  // namespace

tn_status tn_forward_workspace(const tn_exec* exec, const tn_forward_args* args, tn_workspace* out,
                               tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::ForwardCall call;
  if (const tn_status s = api::check_forward(args, false, call, error); s != TN_OK) return s;
  return report_size(0, out, error);
}

tn_status tn_backward_workspace(const tn_exec* exec, const tn_backward_args* args, tn_workspace* out,
                                tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::BackwardCall call;
  if (const tn_status s = api::check_backward(args, false, call, error); s != TN_OK) return s;
  std::size_t bytes = 0;
  if (const tn_status s = backward_scratch(call, where, bytes, error); s != TN_OK) return s;
  return report_size(bytes, out, error);
}

tn_status tn_forward(const tn_exec* exec, const tn_forward_args* args, const tn_workspace*, tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::ForwardCall call;
  if (const tn_status s = api::check_forward(args, true, call, error); s != TN_OK) return s;
  cpu::run_forward(call, *cpu::kernels_for(where.isa), where.threads);
  return TN_OK;
}

tn_status tn_backward(const tn_exec* exec, const tn_backward_args* args, const tn_workspace* workspace,
                      tn_error* error) noexcept {
  tn_exec where;
  if (const tn_status s = api::check_exec(exec, where, error); s != TN_OK) return s;
  spec::BackwardCall call;
  if (const tn_status s = api::check_backward(args, true, call, error); s != TN_OK) return s;
  std::size_t needed = 0;
  if (const tn_status s = backward_scratch(call, where, needed, error); s != TN_OK) return s;
  if (const tn_status s = check_workspace(workspace, needed, error); s != TN_OK) return s;
  cpu::run_backward(call, *cpu::kernels_for(where.isa), where.threads, needed == 0 ? nullptr : align(workspace->data));
  return TN_OK;
}
