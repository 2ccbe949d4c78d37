// Random tensors that depend on a key and the place of each element alone: not on threads, nor on the order in which
// rows are made.
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>

namespace truenorm::cli {

// A 64-bit hash of a hash and a further value.
uint64_t hash_with(uint64_t hash, uint64_t value);

// Normally distributed values, one in some thousands of them `outlier` times as far from the mean.
struct Distribution {
  double mean = 0;
  double scale = 1;
  double outlier = 1;
};

// Fills one row of a tensor, rounding to its type (FP16 within its finite range). `scratch` has room for N values.
void fill_row(const tn_tensor& tensor, int64_t row, uint64_t key, const Distribution& distribution, double* scratch);

}  // namespace truenorm::cli
