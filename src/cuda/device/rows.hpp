// The rows of a matrix as a kernel is given them: row r's place without a branch, or a division.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "spec/call.hpp"

namespace truenorm::cuda {

// Rows at equal distances, but that after each `inner` of them there is a jump. Fewer than 2^31 rows.
struct RowsAt {
  std::byte* data = nullptr;
  std::int64_t stride = 0;  // bytes from a row to the next
  std::int64_t jump = 0;    // bytes more after each `inner` rows
  std::uint32_t magic = 0;  // r / inner is (r * magic) >> 32 >> shift; 0 where there are no jumps
  std::uint32_t shift = 0;
  spec::Type type = spec::Type::f32;
  bool present = false;

  TN_FN std::byte* at(std::uint32_t r) const {
    const auto jumps = static_cast<std::uint32_t>((std::uint64_t{r} * magic) >> 32) >> shift;
    return data + r * stride + jumps * jump;
  }
};

// The first m rows of t, m below 2^31.
inline RowsAt rows_at(const spec::Rows& t, std::int64_t m) {
  RowsAt out{.data = t.data, .stride = t.inner_stride, .type = t.type, .present = t.present};
  if (t.inner >= m) return out;
  if (t.inner <= 1) {
    out.stride = t.outer_stride;
    return out;
  }
  // With 2^(s-1) < inner <= 2^s and magic = 2^(31+s) / inner rounded up, (r * magic) >> (31 + s) is exact for r below
  // 2^31 (Granlund & Montgomery 1994, theorem 4.2).
  const auto inner = static_cast<std::uint64_t>(t.inner);
  const auto s = static_cast<std::uint32_t>(std::bit_width(inner - 1));
  out.jump = t.outer_stride - t.inner * t.inner_stride;
  out.magic = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + s)) + inner - 1) / inner);
  out.shift = s - 1;
  return out;
}

}  // namespace truenorm::cuda
