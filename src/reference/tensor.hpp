// Reading and writing the public API's tensor views as doubles.
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>
#include <vector>

namespace truenorm::reference {

inline bool present(const tn_tensor& tensor) { return tensor.dtype != TN_DTYPE_NONE; }

// N: the last dimension.
int64_t columns(const tn_tensor& tensor);
// M: the product of the dimensions before the last; 1 for one-dimensional tensors.
int64_t rows(const tn_tensor& tensor);

// The N values of one row into out[0..N), exactly.
void load_row(const tn_tensor& tensor, int64_t row, double* out);
// The same for a one-dimensional tensor as a whole.
std::vector<double> load_vector(const tn_tensor& tensor);

// values[0..N), each rounded to the tensor's type, into one row.
void store_row(const tn_tensor& tensor, int64_t row, const double* values);

}  // namespace truenorm::reference
