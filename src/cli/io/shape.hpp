#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace truenorm::cli {

// More dimensions than numpy allows; a file that claims more is refused.
inline constexpr size_t kMaxFileDims = 64;

// The product of `shape`; 1 for no dimensions. Nothing where a dimension is negative or where the product of those that
// are not zero overflows, so that each product of some of them (a row's elements, say) is safe as well.
inline std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return empty ? 0 : product;
}

}  // namespace truenorm::cli
