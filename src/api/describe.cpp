// Names, versions, views and errors: the small functions of the C interface.
#include <cstdarg>
#include <cstdio>
#include <new>
#include <system_error>

#include "api/error.hpp"
#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "cuda/run.hpp"
#include "spec/order.hpp"
#include "truenorm/truenorm.h"

namespace truenorm::api {

tn_status fail(tn_error* error, tn_status status, const char* format, ...) noexcept {
  if (error != nullptr) {
    std::va_list arguments;
    va_start(arguments, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start above is not seen through
    std::vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
  }
  return status;
}

}  // namespace truenorm::api

namespace api = truenorm::api;
namespace cpu = truenorm::cpu;

const char* tn_status_name(tn_status status) noexcept {
  switch (status) {
    case TN_OK: return "ok";
    case TN_INVALID_ARGUMENT: return "invalid argument";
    case TN_UNSUPPORTED: return "unsupported";
    case TN_WORKSPACE_TOO_SMALL: return "workspace too small";
    case TN_NO_DEVICE: return "no such device";
    case TN_OUT_OF_MEMORY: return "out of memory";
    case TN_DEVICE_ERROR: return "device error";
    default: return "unknown status";
  }
}

const char* tn_dtype_name(tn_dtype dtype) noexcept {
  switch (dtype) {
    case TN_DTYPE_NONE: return "none";
    case TN_F32: return "f32";
    case TN_F16: return "f16";
    case TN_BF16: return "bf16";
    default: return "invalid";
  }
}

size_t tn_dtype_size(tn_dtype dtype) noexcept {
  switch (dtype) {
    case TN_F32: return 4;
    case TN_F16:
    case TN_BF16: return 2;
    default: return 0;
  }
}

tn_tensor tn_matrix(void* data, tn_dtype dtype, int64_t rows, int64_t n) noexcept {
  return {data, dtype, 2, {rows, n, 0}, {n, 1, 0}};
}

tn_tensor tn_vector(void* data, tn_dtype dtype, int64_t n) noexcept { return {data, dtype, 1, {n, 0, 0}, {1, 0, 0}}; }

const char* tn_isa_name(tn_isa isa) noexcept {
  switch (isa) {
    case TN_ISA_AUTO: return "auto";
    case TN_ISA_SCALAR: return "scalar";
    case TN_ISA_AVX2: return "avx2";
    case TN_ISA_AVX512: return "avx512";
    case TN_ISA_NEON: return "neon";
    default: return "invalid";
  }
}

int tn_isa_built(tn_isa isa) noexcept { return cpu::isa_built(isa) ? 1 : 0; }

int tn_isa_available(tn_isa isa) noexcept { return cpu::isa_available(isa) ? 1 : 0; }

tn_status tn_threads_create(int32_t count, tn_threads** out, tn_error* error) noexcept {
  if (out == nullptr) return api::fail(error, TN_INVALID_ARGUMENT, "out: got NULL; needs a place for the pool");
  *out = nullptr;
  if (count < 1 || count > 1024) {
    return api::fail(error, TN_INVALID_ARGUMENT, "count: got %d; needs 1 to 1024 threads", static_cast<int>(count));
  }
  try {
    *out = new tn_threads(count);
  } catch (const std::exception& e) {
    return api::fail(error, TN_OUT_OF_MEMORY, "count: the system refused %d threads (%s)", static_cast<int>(count),
                     e.what());
  }
  return api::succeed(error);
}

void tn_threads_destroy(tn_threads* threads) noexcept { delete threads; }

int32_t tn_threads_count(const tn_threads* threads) noexcept { return threads == nullptr ? 1 : threads->count(); }

int32_t tn_device_count(tn_device_type type) noexcept {
  if (type == TN_CUDA) return truenorm::cuda::device_count();
  return type == TN_CPU ? 1 : 0;
}

const char* tn_version(void) noexcept { return "0.1.0"; }

int32_t tn_order_version(void) noexcept { return truenorm::spec::kOrderVersion; }

int tn_has_backend(tn_device_type type) noexcept {
  return type == TN_CPU || (type == TN_CUDA && truenorm::cuda::compiled()) ? 1 : 0;
}
