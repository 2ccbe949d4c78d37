#include "cli/verify_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "reference/tensor.hpp"

namespace truenorm::cli {
namespace {

// The finaliser of splitmix64 (Steele, Lea & Flood 2014).
uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15U;
constexpr int kTableBits = 12;
constexpr uint64_t kTableMask = (1U << kTableBits) - 1U;
constexpr double kMaxF16Input = 60000;

using NormalTable = std::array<double, size_t{1} << kTableBits>;

// Standard normal values by the method of Box and Muller (1958).
const NormalTable& normal_table() {
  static const NormalTable table = [] {
    NormalTable values{};
    const auto uniform = [](uint64_t index) {
      return (static_cast<double>(scramble(index * kGolden) >> 11) + 0.5) * 0x1p-53;
    };
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sqrt(-2 * std::log(uniform(2 * i + 1))) * std::cos(2 * std::numbers::pi * uniform(2 * i + 2));
    }
    return values;
  }();
  return table;
}

}  // namespace

uint64_t hash_with(uint64_t hash, uint64_t value) { return scramble(hash + kGolden + scramble(value + kGolden)); }

void fill_row(const tn_tensor& tensor, int64_t row, uint64_t key, const Distribution& distribution, double* scratch) {
  const NormalTable& table = normal_table();
  const int64_t n = reference::columns(tensor);
  const uint64_t row_key = hash_with(key, static_cast<uint64_t>(row));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = scramble(row_key + static_cast<uint64_t>(i) * kGolden);
    // (2/3)^2 + (2/3)^2 + (1/3)^2 = 1: again standard normal, with 2^36 values instead of the table's 2^12.
    double value = (2 * table[bits & kTableMask] + 2 * table[(bits >> kTableBits) & kTableMask] +
                    table[(bits >> (2 * kTableBits)) & kTableMask]) /
                   3;
    const bool is_outlier = (bits >> (64 - kTableBits)) == 0;
    value *= is_outlier ? distribution.scale * distribution.outlier : distribution.scale;
    scratch[i] = distribution.mean + value;
  }
  if (tensor.dtype == TN_F16) {
    for (int64_t i = 0; i < n; ++i) scratch[i] = std::clamp(scratch[i], -kMaxF16Input, kMaxF16Input);
  }
  reference::store_row(tensor, row, scratch);
}

}  // namespace truenorm::cli
