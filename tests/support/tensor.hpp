// Elements of tensor views, as bits and as values.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "truenorm/truenorm.h"

namespace truenorm::test {

// A tensor's elements in row-major order, each zero-extended to 32 bits.
using Bits = std::vector<std::uint32_t>;

// Rows and columns of a view; a vector is one row.
std::int64_t rows_of(const tn_tensor& t);
std::int64_t columns_of(const tn_tensor& t);
inline bool absent(const tn_tensor& t) { return t.dtype == TN_DTYPE_NONE; }

std::byte* row_at(const tn_tensor& t, std::int64_t row);
// Row `row` alone, as a view of rank 1.
tn_tensor row_view(const tn_tensor& t, std::int64_t row);

std::uint32_t bits_at(const tn_tensor& t, std::int64_t row, std::int64_t column);
void set_bits(const tn_tensor& t, std::int64_t row, std::int64_t column, std::uint32_t bits);
float value_at(const tn_tensor& t, std::int64_t row, std::int64_t column);
void set_value(const tn_tensor& t, std::int64_t row, std::int64_t column, float value);

// One element of a type to FP32 and back (nearest even).
float widened(tn_dtype type, std::uint32_t bits);
std::uint32_t narrowed(tn_dtype type, float value);
bool is_nan(tn_dtype type, std::uint32_t bits);

Bits read_bits(const tn_tensor& t);
void write_bits(const tn_tensor& t, const Bits& bits);

// Equal bit for bit; NaNs may differ in payload. The message shows the first difference.
testing::AssertionResult equal_bits(const tn_tensor& got, const Bits& expected);

}  // namespace truenorm::test
