// What the command does to elements themselves: looking for non-finite ones, changing their type, making them up,
// and summing them up for a person to compare.
#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace truenorm::cli {

struct NonFinite {
  int64_t count = 0;
  int64_t first = -1;  // index of the first; -1 where there is none
};

// NaNs and infinities among the `bytes` (any alignment) of `dtype`.
NonFinite find_nonfinite(tn_dtype dtype, std::span<const std::byte> bytes);

// Converts each element, to the nearest value of `to`, ties to even; beyond its range to infinity. `out` is as many
// elements of `to` as `in` holds of `from`; both may have any alignment.
void convert(tn_dtype from, std::span<const std::byte> in, tn_dtype to, std::span<std::byte> out);

// Standard normal numbers, rounded to `dtype`: value i depends on `seed` and i alone (splitmix64, then Box & Muller
// 1958 in FP64).
void fill_normal(tn_dtype dtype, uint64_t seed, std::span<std::byte> out);

void fill_with(tn_dtype dtype, double value, std::span<std::byte> out);

// FNV-1a, 64 bits (Fowler, Noll & Vo).
uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace truenorm::cli
