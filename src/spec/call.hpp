// A call once its arguments have been checked: operands and options, as plain data that every backend's kernels take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/types.hpp"

namespace truenorm::spec {

// The rows of a matrix, strides in bytes. Row r lies at (r / inner) * outer_stride + (r % inner) * inner_stride.
struct Rows {
  std::byte* data = nullptr;
  Type type = Type::f32;
  bool present = false;
  std::int64_t inner = 0;
  std::int64_t inner_stride = 0;
  std::int64_t outer_stride = 0;
};

// A contiguous vector.
struct Vec {
  std::byte* data = nullptr;
  Type type = Type::f32;
  bool present = false;
};

TN_FN std::int64_t size_of(Type t) { return t == Type::f32 ? 4 : 2; }

TN_FN std::byte* row_of(const Rows& t, std::int64_t r) {
  if (r < t.inner) return t.data + r * t.inner_stride;
  return t.data + (r / t.inner) * t.outer_stride + (r % t.inner) * t.inner_stride;
}

struct ForwardCall {
  std::int64_t m = 0;
  std::int64_t n = 0;
  bool layer_norm = false;
  bool round_xhat = false;  // llama rounding, of a 16-bit x
  Type xhat_type = Type::f32;
  Type s_type = Type::f32;
  float eps = 0;
  float offset = 0;
  Rows x, residual, y, s;  // s is present where residual_out is asked for
  Vec weight, bias;
  float* mean = nullptr;
  float* rstd = nullptr;
};

struct BackwardCall {
  std::int64_t m = 0;
  std::int64_t n = 0;
  bool layer_norm = false;
  bool round_xhat = false;
  Type xhat_type = Type::f32;
  float offset = 0;
  Rows dy, ds, s, dx, dresidual;
  Vec weight;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  Vec dweight, dbias;
};

}  // namespace truenorm::spec
