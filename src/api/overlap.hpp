// Do two views touch a common byte?
#pragma once

#include "truenorm/truenorm.h"

namespace truenorm::api {

// A matrix view as rows of `length` bytes: row (i, j) starts at data + i * outer_stride + j * inner_stride.
struct Extent {
  const char* data = nullptr;
  int64_t outer = 0;  // counts; a view without elements has a zero among them
  int64_t inner = 0;
  int64_t outer_stride = 0;  // bytes, not negative
  int64_t inner_stride = 0;
  int64_t length = 0;  // bytes

  bool operator==(const Extent&) const = default;
};

// Exact for views of equal counts and strides (two slices of one buffer) and for views whose ranges lie apart; other
// views whose ranges meet count as overlapping.
bool overlap(const Extent& a, const Extent& b) noexcept;

// Do two rows of one view touch? Exact where the larger stride clears all that the smaller one spans (any view that
// transposing or slicing makes); others count as touching.
bool rows_overlap(const Extent& e) noexcept;

}  // namespace truenorm::api
