// truenorm for C++20: value types, RAII and exceptions over truenorm.h, which says what each operation computes.
//
//     truenorm::Context cpu(2);                                        // two threads
//     cpu.rms_norm({.x = truenorm::matrix(x, rows, n),
//                   .weight = truenorm::vector(w, n),
//                   .y = truenorm::matrix(y, rows, n)});
//
// Header only; link libtruenorm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "truenorm/truenorm.h"

namespace truenorm {

// A refused or failed call: what() is the sentence that names the argument, what it got and what it needs.
class Error : public std::runtime_error {
 public:
  Error(tn_status status, const char* message) : std::runtime_error(message), status_(status) {}
  tn_status status() const noexcept { return status_; }

 private:
  tn_status status_;
};

enum class Type : tn_dtype { f32 = TN_F32, f16 = TN_F16, bf16 = TN_BF16 };
enum class Rounding : tn_rounding { once = TN_ROUND_ONCE, llama = TN_ROUND_LLAMA };
enum class Isa : tn_isa {
  automatic = TN_ISA_AUTO,
  scalar = TN_ISA_SCALAR,
  avx2 = TN_ISA_AVX2,
  avx512 = TN_ISA_AVX512,
  neon = TN_ISA_NEON
};

// A view; `{}` is an absent tensor. Inputs are never written, so views of constant data may be made freely.
using Tensor = tn_tensor;

// Dense views: [rows, n] and [n]. For the 16-bit types pass the pointer and the type.
inline Tensor matrix(const void* data, Type type, std::int64_t rows, std::int64_t n) noexcept {
  return tn_matrix(const_cast<void*>(data), static_cast<tn_dtype>(type), rows, n);
}
inline Tensor matrix(const float* data, std::int64_t rows, std::int64_t n) noexcept {
  return matrix(data, Type::f32, rows, n);
}
inline Tensor vector(const void* data, Type type, std::int64_t n) noexcept {
  return tn_vector(const_cast<void*>(data), static_cast<tn_dtype>(type), n);
}
inline Tensor vector(const float* data, std::int64_t n) noexcept { return vector(data, Type::f32, n); }

// [rows, n] whose rows lie `row_stride` elements apart.
inline Tensor strided(const void* data, Type type, std::int64_t rows, std::int64_t n,
                      std::int64_t row_stride) noexcept {
  Tensor t = matrix(data, type, rows, n);
  t.strides[0] = row_stride;
  return t;
}

// [outer, inner, n] with a stride, in elements, for each of the first two: a [T, H, D] slice of a fused QKV buffer.
inline Tensor strided(const void* data, Type type, std::int64_t outer, std::int64_t inner, std::int64_t n,
                      std::int64_t outer_stride, std::int64_t inner_stride) noexcept {
  return {const_cast<void*>(data), static_cast<tn_dtype>(type), 3, {outer, inner, n}, {outer_stride, inner_stride, 1}};
}

// A forward call's operands and options: the fields of tn_forward_args.
struct Forward {
  Tensor x{};         // [M, N]
  Tensor residual{};  // [M, N], optional
  Tensor weight{};    // [N], optional
  Tensor bias{};      // [N], optional

  Tensor y{};             // [M, N]; an output, as the rest, and computed only where given
  Tensor residual_out{};  // [M, N]: x + residual, rounded to its type
  Tensor mean{};          // [M], FP32, layer_norm only
  Tensor rstd{};          // [M], FP32

  float eps = 1e-6f;
  float offset = 0.0f;
  Rounding rounding = Rounding::once;
  std::uint32_t in_place = 0;  // TN_Y_OVER_X, ...
};

// A backward call's operands and options: the fields of tn_backward_args.
struct Backward {
  Tensor dy{};      // [M, N]
  Tensor ds{};      // [M, N], optional: the gradient arriving at residual_out
  Tensor s{};       // [M, N]: the forward's x, or its residual_out
  Tensor weight{};  // [N], as in the forward
  Tensor mean{};    // [M], from the forward, layer_norm only
  Tensor rstd{};    // [M], from the forward

  Tensor dx{};         // [M, N]; an output, as the rest, and computed only where given
  Tensor dresidual{};  // [M, N]: the same gradient in the residual's type
  Tensor dweight{};    // [N]
  Tensor dbias{};      // [N]

  float offset = 0.0f;
  Rounding rounding = Rounding::once;
  tn_dtype x_dtype = TN_DTYPE_NONE;  // the forward x's type where it is not s's; for Rounding::llama
  std::uint32_t in_place = 0;
};

// Where calls run, with the threads and the scratch they use. One call at a time; make one context a thread.
class Context {
 public:
  // The CPU, with `threads` threads working on a call, the caller being one. Throws Error.
  explicit Context(int threads = 1, Isa isa = Isa::automatic) {
    exec_.struct_size = sizeof exec_;
    exec_.isa = static_cast<tn_isa>(isa);
    if (threads != 1) {
      tn_threads* pool = nullptr;
      tn_error error{};
      check(tn_threads_create(threads, &pool, &error), error);
      threads_.reset(pool);
      exec_.threads = pool;
    }
  }

  // Each throws Error, having written nothing, when an argument is refused, and std::bad_alloc without memory for
  // scratch.
  void rms_norm(const Forward& call) { forward(TN_RMS_NORM, call); }
  void layer_norm(const Forward& call) { forward(TN_LAYER_NORM, call); }
  void rms_norm_backward(const Backward& call) { backward(TN_RMS_NORM, call); }
  void layer_norm_backward(const Backward& call) { backward(TN_LAYER_NORM, call); }

  const tn_exec& exec() const noexcept { return exec_; }

 private:
  struct DestroyThreads {
    void operator()(tn_threads* t) const noexcept { tn_threads_destroy(t); }
  };

  static void check(tn_status status, const tn_error& error) {
    if (status != TN_OK) throw Error(status, error.message);
  }

  // The scratch grows to the largest call's need and is kept.
  const tn_workspace& reserve(std::size_t size) {
    if (size > workspace_.size) {
      scratch_ = std::make_unique<std::byte[]>(size);
      workspace_.data = scratch_.get();
      workspace_.size = size;
    }
    return workspace_;
  }

  void forward(tn_op op, const Forward& c) {
    const tn_forward_args args{sizeof args, op,         static_cast<tn_rounding>(c.rounding),
                               c.eps,       c.offset,   c.in_place,
                               c.x,         c.residual, c.weight,
                               c.bias,      c.y,        c.residual_out,
                               c.mean,      c.rstd};
    tn_error error{};
    tn_workspace need{};
    check(tn_forward_workspace(&exec_, &args, &need, &error), error);
    check(tn_forward(&exec_, &args, &reserve(need.size), &error), error);
  }

  void backward(tn_op op, const Backward& c) {
    const tn_backward_args args{sizeof args, op,          static_cast<tn_rounding>(c.rounding),
                                c.x_dtype,   c.offset,    c.in_place,
                                c.dy,        c.ds,        c.s,
                                c.weight,    c.mean,      c.rstd,
                                c.dx,        c.dresidual, c.dweight,
                                c.dbias};
    tn_error error{};
    tn_workspace need{};
    check(tn_backward_workspace(&exec_, &args, &need, &error), error);
    check(tn_backward(&exec_, &args, &reserve(need.size), &error), error);
  }

  tn_exec exec_{};
  std::unique_ptr<tn_threads, DestroyThreads> threads_;
  std::unique_ptr<std::byte[]> scratch_;
  tn_workspace workspace_{};
};

}  // namespace truenorm
