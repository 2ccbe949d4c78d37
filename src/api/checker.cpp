#include "api/checker.hpp"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

namespace truenorm::api {

void Checker::refuse(const char* format, ...) noexcept {
  if (!ok()) return;
  char message[sizeof(tn_error)];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  status_ = fail(error_, TN_INVALID_ARGUMENT, "%s", message);
}

bool Checker::present(const char* name, const tn_tensor& t, bool required) noexcept {
  if (!ok()) return false;
  if (t.dtype == TN_DTYPE_NONE) {
    if (required) refuse("%s: got no tensor; needs one", name);
    return false;
  }
  if (!is_type(t.dtype)) {
    refuse("%s: got type %d; needs f32 (1), f16 (2) or bf16 (3)", name, static_cast<int>(t.dtype));
    return false;
  }
  return true;
}

void Checker::pointer(const char* name, const tn_tensor& t) noexcept {
  if (!need_data_) return;
  if (t.data == nullptr) return refuse("%s: got NULL data; needs a pointer", name);
  const std::size_t size = tn_dtype_size(t.dtype);
  if (reinterpret_cast<std::uintptr_t>(t.data) % size != 0) {
    refuse("%s: got an address that is no multiple of %zu; needs alignment to its elements", name, size);
  }
}

void Checker::matrix(const char* name, const tn_tensor& t, bool required, spec::Rows& out, Extent& extent) noexcept {
  if (!present(name, t, required)) return;
  if (t.ndim < 1 || t.ndim > TN_MAX_DIMS) {
    return refuse("%s: got %d dimensions; needs 1 to %d", name, static_cast<int>(t.ndim), TN_MAX_DIMS);
  }
  const int last = t.ndim - 1;
  std::int64_t rows = 1;
  for (int d = 0; d <= last; ++d) {
    if (t.shape[d] < 0)
      return refuse("%s: got size %" PRId64 " in dimension %d; needs at least 0", name, t.shape[d], d);
    if (d < last && __builtin_mul_overflow(rows, t.shape[d], &rows)) {
      return refuse("%s: got a shape of more than 2^63 rows; needs fewer", name);
    }
  }
  if (t.shape[last] < 1) return refuse("%s: got hidden size 0; needs at least 1", name);
  if (first_matrix_ == nullptr) {
    first_matrix_ = name;
    m_ = rows;
    n_ = t.shape[last];
  }
  if (t.shape[last] != n_) {
    return refuse("%s: got hidden size %" PRId64 "; needs %" PRId64 ", as %s has", name, t.shape[last], n_,
                  first_matrix_);
  }
  if (rows != m_) {
    return refuse("%s: got %" PRId64 " rows; needs %" PRId64 ", as %s has", name, rows, m_, first_matrix_);
  }
  if (n_ > 1 && t.strides[last] != 1) {
    return refuse("%s: got stride %" PRId64 " in its last dimension; needs 1 (make it contiguous there)", name,
                  t.strides[last]);
  }

  // The row axes, outer and inner. Where there is one row, a stride means nothing.
  std::int64_t count[2] = {1, 1}, stride[2] = {0, 0};
  for (int d = 0; d < last; ++d) {
    const int axis = d + 2 - last;
    count[axis] = t.shape[d];
    if (t.shape[d] <= 1) continue;
    if (t.strides[d] < 0) {
      return refuse("%s: got stride %" PRId64 " in dimension %d; needs at least 0", name, t.strides[d], d);
    }
    stride[axis] = t.strides[d];
  }
  const auto size = static_cast<std::int64_t>(tn_dtype_size(t.dtype));
  std::int64_t reach = n_;  // elements from the first to past the last
  for (int axis = 0; axis < 2; ++axis) {
    std::int64_t step = 0;
    if (count[axis] > 1 &&
        (__builtin_mul_overflow(count[axis] - 1, stride[axis], &step) || __builtin_add_overflow(reach, step, &reach))) {
      return refuse("%s: got strides that reach beyond 2^63 elements; needs less", name);
    }
  }
  if (reach > INT64_MAX / size) return refuse("%s: got strides that reach beyond 2^63 bytes; needs less", name);
  if (m_ > 0) pointer(name, t);
  if (!ok()) return;

  // Two axes that are one evenly spaced run of rows are one axis.
  if (count[1] == 1 ||
      (count[0] > 1 && count[1] > 1 && stride[0] % count[1] == 0 && stride[0] / count[1] == stride[1])) {
    if (count[1] == 1) stride[1] = stride[0];
    count[1] *= count[0];
    count[0] = 1;
    stride[0] = 0;
  }
  out = {static_cast<std::byte*>(t.data),
         static_cast<spec::Type>(t.dtype),
         true,
         count[1],
         stride[1] * size,
         stride[0] * size};
  extent = {static_cast<const char*>(t.data), count[0], count[1], out.outer_stride, out.inner_stride, n_ * size};
}

void Checker::vector(const char* name, const tn_tensor& t, bool required, std::int64_t count, const char* what,
                     spec::Vec& out, Extent& extent) noexcept {
  if (!present(name, t, required)) return;
  if (t.ndim != 1) return refuse("%s: got %d dimensions; needs 1", name, static_cast<int>(t.ndim));
  if (t.shape[0] != count) {
    return refuse("%s: got %" PRId64 " elements; needs %" PRId64 ", the %s", name, t.shape[0], count, what);
  }
  if (count > 1 && t.strides[0] != 1) return refuse("%s: got stride %" PRId64 "; needs 1", name, t.strides[0]);
  const auto size = static_cast<std::int64_t>(tn_dtype_size(t.dtype));
  if (count > INT64_MAX / size) return refuse("%s: got more than 2^63 bytes; needs less", name);
  if (count > 0) pointer(name, t);
  out = {static_cast<std::byte*>(t.data), static_cast<spec::Type>(t.dtype), true};
  extent = {static_cast<const char*>(t.data), 1, 1, 0, 0, count * size};
}

void Checker::statistic(const char* name, const tn_tensor& t, bool required, float*& out, Extent& extent) noexcept {
  if (is_type(t.dtype) && t.dtype != TN_F32) return refuse("%s: got type %s; needs f32", name, tn_dtype_name(t.dtype));
  spec::Vec v;
  vector(name, t, required, m_, "number of rows", v, extent);
  out = reinterpret_cast<float*>(v.data);
}

void Checker::memory(std::span<const Named> inputs, std::span<const Named> outputs,
                     std::span<const Permission> permissions, std::uint32_t in_place) noexcept {
  if (!ok() || !need_data_) return;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (rows_overlap(outputs[o].extent)) {
      return refuse("%s: got strides that make its rows overlap; needs rows apart, since it is written",
                    outputs[o].name);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Permission* permission = nullptr;
      for (const Permission& p : permissions) {
        if (p.output == o && p.input == i) permission = &p;
      }
      apart(outputs[o], inputs[i], in_place, permission);
    }
    for (std::size_t other = o + 1; other < outputs.size(); ++other) apart(outputs[o], outputs[other], 0, nullptr);
  }
}

void Checker::apart(const Named& output, const Named& other, std::uint32_t in_place,
                    const Permission* permission) noexcept {
  if (!overlap(output.extent, other.extent)) return;
  if (permission == nullptr) {
    return refuse("%s: shares memory with %s; needs memory of its own", output.name, other.name);
  }
  const bool same = output.extent == other.extent && output.tensor.dtype == other.tensor.dtype;
  if (!same || (in_place & permission->flag) == 0) {
    refuse("%s: shares memory with %s; needs memory of its own, or the very same view with %s set in in_place",
           output.name, other.name, permission->name);
  }
}

}  // namespace truenorm::api
