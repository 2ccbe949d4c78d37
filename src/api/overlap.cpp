#include "api/overlap.hpp"

#include <algorithm>
#include <cstdint>

namespace truenorm::api {

namespace {

bool empty(const Extent& e) { return e.outer == 0 || e.inner == 0 || e.length == 0; }

// Bytes from the first row's start to the last row's end.
int64_t span(const Extent& e) { return (e.outer - 1) * e.outer_stride + (e.inner - 1) * e.inner_stride + e.length; }

// Two views of the same counts and strides whose starts lie `distance` >= 0 apart: is there a pair of rows (i, j),
// (k, l) with |distance - (i - k) * outer_stride - (j - l) * inner_stride| < length?
bool slices_overlap(const Extent& e, int64_t distance) {
  // Walk the shorter axis; along the other, only the two offsets next to the target can come close enough.
  const bool walk_outer = e.outer <= e.inner;
  const int64_t walked = walk_outer ? e.outer : e.inner, walked_stride = walk_outer ? e.outer_stride : e.inner_stride;
  const int64_t other = walk_outer ? e.inner : e.outer, other_stride = walk_outer ? e.inner_stride : e.outer_stride;
  for (int64_t i = -(walked - 1); i <= walked - 1; ++i) {
    const int64_t rest = distance - i * walked_stride;
    if (other_stride == 0) {
      if (std::abs(rest) < e.length) return true;
      continue;
    }
    const int64_t below = rest >= 0 ? rest / other_stride : -((-rest + other_stride - 1) / other_stride);
    for (const int64_t j : {below, below + 1}) {
      const int64_t clamped = std::clamp(j, -(other - 1), other - 1);
      if (std::abs(rest - clamped * other_stride) < e.length) return true;
    }
  }
  return false;
}

}  // namespace

bool overlap(const Extent& a, const Extent& b) noexcept {
  if (empty(a) || empty(b)) return false;
  const auto pa = reinterpret_cast<std::uintptr_t>(a.data), pb = reinterpret_cast<std::uintptr_t>(b.data);
  const Extent& low = pa <= pb ? a : b;
  const std::uintptr_t distance = pa <= pb ? pb - pa : pa - pb;
  if (distance >= static_cast<std::uintptr_t>(span(low))) return false;
  const bool same_shape = a.outer == b.outer && a.inner == b.inner && a.length == b.length &&
                          a.outer_stride == b.outer_stride && a.inner_stride == b.inner_stride;
  constexpr int64_t kLongWalk = 1 << 20;
  constexpr int64_t kLongest = INT64_MAX / 4;  // slices_overlap adds up three such; no memory is as large
  if (!same_shape || std::min(a.outer, a.inner) > kLongWalk || span(low) > kLongest) return true;
  return slices_overlap(low, static_cast<int64_t>(distance));
}

bool rows_overlap(const Extent& e) noexcept {
  if (empty(e)) return false;
  int64_t count_small = e.inner, small = e.inner_stride, count_large = e.outer, large = e.outer_stride;
  if (small > large) {
    std::swap(small, large);
    std::swap(count_small, count_large);
  }
  if (count_small > 1 && small < e.length) return true;
  return count_large > 1 && large < (count_small - 1) * small + e.length;
}

}  // namespace truenorm::api
