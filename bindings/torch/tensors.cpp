#include "tensors.hpp"

#include <ATen/EmptyTensor.h>
#ifdef TRUENORM_TORCH_WITH_CUDA
#include <ATen/cuda/EmptyTensor.h>
#endif

#include <array>
#include <optional>

namespace truenorm::binding {

namespace {

// Whether the last `columns` dimensions lie in memory as one dense row; its length in `n`.
bool dense_columns(const at::Tensor& t, std::int64_t columns, std::int64_t& n) {
  n = 1;
  for (std::int64_t d = t.dim() - 1; d >= t.dim() - columns; --d) {
    if (t.size(d) != 1 && t.stride(d) != n) return false;
    n *= t.size(d);
  }
  return true;
}

// The dimensions before the columns, joined where one stride reaches through both; false where three levels remain.
bool rows_of(const at::Tensor& t, std::int64_t columns, std::int64_t n, tn_tensor& view) {
  std::array<std::int64_t, 2> size{1, 1}, stride{n, n};  // the inner level first
  int levels = 0;
  for (std::int64_t d = t.dim() - columns - 1; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (levels > 0 && t.stride(d) == size[levels - 1] * stride[levels - 1]) {
      size[levels - 1] *= t.size(d);
    } else if (levels == 2) {
      return false;
    } else {
      size[levels] = t.size(d);
      stride[levels] = t.stride(d);
      ++levels;
    }
  }
  view.ndim = 0;
  for (int level = std::max(levels, 1) - 1; level >= 0; --level) {
    view.shape[view.ndim] = size[level];
    view.strides[view.ndim++] = stride[level];
  }
  view.shape[view.ndim] = n;
  view.strides[view.ndim++] = 1;
  return true;
}

tn_tensor dense_matrix(void* data, tn_dtype dtype, const at::Tensor& t, std::int64_t columns) {
  std::int64_t n = 1, rows = 1;
  for (std::int64_t d = 0; d < t.dim(); ++d) (d < t.dim() - columns ? rows : n) *= t.size(d);
  return tn_matrix(data, dtype, rows, n);
}

}  // namespace

Input input_matrix(const at::Tensor& t, std::int64_t columns, const char* function, const char* name) {
  if (!t.defined()) return {};
  const tn_dtype dtype = supported_dtype(t.scalar_type(), function, name);
  Input in{t, {}};
  std::int64_t n = 1;
  if (t.numel() > 0 && dense_columns(t, columns, n) && rows_of(t, columns, n, in.view)) {
    in.view.data = const_cast<void*>(t.const_data_ptr());
    in.view.dtype = dtype;
    return in;
  }
  in.owner = t.contiguous();
  in.view = dense_matrix(const_cast<void*>(in.owner.const_data_ptr()), dtype, in.owner, columns);
  return in;
}

Input input_vector(const at::Tensor& t, const char* function, const char* name) {
  if (!t.defined()) return {};
  Input in{t.contiguous(), {}};
  in.view = tn_vector(const_cast<void*>(in.owner.const_data_ptr()), supported_dtype(t.scalar_type(), function, name),
                      t.numel());
  return in;
}

tn_tensor output_matrix(const at::Tensor& t, std::int64_t columns) {
  if (!t.defined()) return {};
  return dense_matrix(t.mutable_data_ptr(), dtype_of(t.scalar_type()), t, columns);
}

tn_tensor output_vector(const at::Tensor& t) {
  if (!t.defined()) return {};
  return tn_vector(t.mutable_data_ptr(), dtype_of(t.scalar_type()), t.numel());
}

tn_dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return TN_F32;
    case at::kHalf: return TN_F16;
    case at::kBFloat16: return TN_BF16;
    default: return TN_DTYPE_NONE;
  }
}

tn_dtype supported_dtype(at::ScalarType type, const char* function, const char* name) {
  const tn_dtype dtype = dtype_of(type);
  TORCH_CHECK(dtype != TN_DTYPE_NONE, "truenorm.", function, ": ", name, ": got ", type,
              "; needs Float, Half or BFloat16");
  return dtype;
}

void check_supported(const at::Device& device, const char* function) {
#ifdef TRUENORM_TORCH_WITH_CUDA
  const bool supported = device.is_cpu() || device.is_cuda();
  const char* const devices = "cpu and cuda";
#else
  const bool supported = device.is_cpu();
  const char* const devices = "cpu alone";
#endif
  TORCH_CHECK(supported, "truenorm.", function, ": x: got a tensor on ", device, "; this build has kernels for ",
              devices);
}

at::Tensor new_dense(at::IntArrayRef sizes, at::ScalarType type, const at::Device& device) {
#ifdef TRUENORM_TORCH_WITH_CUDA
  if (device.is_cuda()) return at::Tensor(at::detail::empty_cuda(sizes, type, device, std::nullopt));
#endif
  return at::Tensor(at::detail::empty_cpu(sizes, type));
}

}  // namespace truenorm::binding
