#include "support/tensor.hpp"

#include <cstring>
#include <sstream>

#include "spec/types.hpp"

namespace truenorm::test {

std::int64_t rows_of(const tn_tensor& t) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < t.ndim; ++d) rows *= t.shape[d];
  return rows;
}

std::int64_t columns_of(const tn_tensor& t) { return t.shape[t.ndim - 1]; }

std::byte* row_at(const tn_tensor& t, std::int64_t row) {
  std::int64_t element = 0;
  for (int d = t.ndim - 2; d >= 0; --d) {
    element += row % t.shape[d] * t.strides[d];
    row /= t.shape[d];
  }
  return static_cast<std::byte*>(t.data) + element * static_cast<std::int64_t>(tn_dtype_size(t.dtype));
}

tn_tensor row_view(const tn_tensor& t, std::int64_t row) {
  return absent(t) ? t : tn_vector(row_at(t, row), t.dtype, columns_of(t));
}

std::uint32_t bits_at(const tn_tensor& t, std::int64_t row, std::int64_t column) {
  const std::size_t size = tn_dtype_size(t.dtype);
  std::uint32_t bits = 0;  // both supported byte orders are little-endian
  std::memcpy(&bits, row_at(t, row) + column * static_cast<std::int64_t>(size), size);
  return bits;
}

void set_bits(const tn_tensor& t, std::int64_t row, std::int64_t column, std::uint32_t bits) {
  const std::size_t size = tn_dtype_size(t.dtype);
  std::memcpy(row_at(t, row) + column * static_cast<std::int64_t>(size), &bits, size);
}

float value_at(const tn_tensor& t, std::int64_t row, std::int64_t column) {
  return widened(t.dtype, bits_at(t, row, column));
}

void set_value(const tn_tensor& t, std::int64_t row, std::int64_t column, float value) {
  set_bits(t, row, column, narrowed(t.dtype, value));
}

float widened(tn_dtype type, std::uint32_t bits) {
  if (type == TN_F32) return spec::float_of(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return type == TN_F16 ? spec::widen_f16(half) : spec::widen_bf16(half);
}

std::uint32_t narrowed(tn_dtype type, float value) {
  if (type == TN_F32) return spec::bits_of(value);
  return type == TN_F16 ? spec::narrow_f16(value) : spec::narrow_bf16(value);
}

bool is_nan(tn_dtype type, std::uint32_t bits) {
  if (type == TN_F32) return (bits & 0x7fffffffu) > 0x7f800000u;
  return (bits & 0x7fffu) > (type == TN_F16 ? 0x7c00u : 0x7f80u);
}

Bits read_bits(const tn_tensor& t) {
  const std::int64_t rows = rows_of(t), columns = columns_of(t);
  const std::size_t size = tn_dtype_size(t.dtype);
  Bits bits(static_cast<std::size_t>(rows * columns));
  std::size_t i = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* element = row_at(t, r);
    for (std::int64_t c = 0; c < columns; ++c, element += size) std::memcpy(&bits[i++], element, size);
  }
  return bits;
}

void write_bits(const tn_tensor& t, const Bits& bits) {
  const std::int64_t rows = rows_of(t), columns = columns_of(t);
  const std::size_t size = tn_dtype_size(t.dtype);
  std::size_t i = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::byte* element = row_at(t, r);
    for (std::int64_t c = 0; c < columns; ++c, element += size) std::memcpy(element, &bits[i++], size);
  }
}

testing::AssertionResult equal_bits(const tn_tensor& got, const Bits& expected) {
  const Bits bits = read_bits(got);
  if (bits.size() != expected.size()) {
    return testing::AssertionFailure() << "got " << bits.size() << " elements, expected " << expected.size();
  }
  std::size_t first = bits.size(), different = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i] == expected[i]) continue;
    if (is_nan(got.dtype, bits[i]) && is_nan(got.dtype, expected[i])) continue;
    if (different++ == 0) first = i;
  }
  if (different == 0) return testing::AssertionSuccess();
  const auto n = static_cast<std::size_t>(columns_of(got));
  const auto show = [&got](std::uint32_t b) {
    std::ostringstream text;
    text << widened(got.dtype, b) << " (0x" << std::hex << b << ")";
    return text.str();
  };
  return testing::AssertionFailure() << different << " of " << bits.size() << " elements differ, the first at row "
                                     << first / n << ", column " << first % n << ": got " << show(bits[first])
                                     << ", expected " << show(expected[first]) << " in " << tn_dtype_name(got.dtype);
}

}  // namespace truenorm::test
