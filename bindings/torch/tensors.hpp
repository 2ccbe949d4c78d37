// at::Tensor as the library's view of memory, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <truenorm/truenorm.h>

namespace truenorm::binding {

// An input and what keeps its memory: the tensor itself, or a dense copy where the library cannot follow its strides.
struct Input {
  at::Tensor owner;
  tn_tensor view{};
};

// `t` (or, undefined, an absent view) with its last `columns` dimensions as N and those before as at most two levels of
// rows. Read through const pointers, so that copy-on-write memory stays shared. `function` and `name` are for messages.
Input input_matrix(const at::Tensor& t, std::int64_t columns, const char* function, const char* name);
// The same for weight, bias, mean and rstd: all dimensions as one.
Input input_vector(const at::Tensor& t, const char* function, const char* name);

// Views of dense outputs; of an undefined tensor, absent ones.
tn_tensor output_matrix(const at::Tensor& t, std::int64_t columns);
tn_tensor output_vector(const at::Tensor& t);

// The library's type for one of torch's; TN_DTYPE_NONE where it has none.
tn_dtype dtype_of(at::ScalarType type);
// As above, or an error that names the function and the tensor.
tn_dtype supported_dtype(at::ScalarType type, const char* function, const char* name);
// An error that names the function where this build has no kernels for the device.
void check_supported(const at::Device& device, const char* function);

// Uninitialised and dense, on a supported device, without a trip through the dispatcher.
at::Tensor new_dense(at::IntArrayRef sizes, at::ScalarType type, const at::Device& device);

}  // namespace truenorm::binding
