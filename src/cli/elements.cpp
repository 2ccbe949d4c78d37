#include "cli/elements.hpp"

#include <cmath>
#include <cstring>
#include <numbers>

#include "reference/format.hpp"

namespace truenorm::cli {
namespace {

uint32_t load(tn_dtype dtype, const std::byte* at) {
  uint32_t wide = 0;
  uint16_t narrow = 0;
  if (dtype == TN_F32) {
    std::memcpy(&wide, at, sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, at, sizeof(narrow));
  return narrow;
}

void store(tn_dtype dtype, uint32_t bits, std::byte* at) {
  const auto narrow = static_cast<uint16_t>(bits);
  if (dtype == TN_F32) {
    std::memcpy(at, &bits, sizeof(bits));
  } else {
    std::memcpy(at, &narrow, sizeof(narrow));
  }
}

uint32_t exponent_mask(tn_dtype dtype) { return dtype == TN_F32 ? 0x7F800000U : dtype == TN_F16 ? 0x7C00U : 0x7F80U; }

uint64_t splitmix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

// In (0, 1]: its logarithm is finite.
double uniform(uint64_t bits) { return static_cast<double>((bits >> 11U) + 1) * 0x1p-53; }

}  // namespace

NonFinite find_nonfinite(tn_dtype dtype, std::span<const std::byte> bytes) {
  const size_t size = tn_dtype_size(dtype);
  const uint32_t mask = exponent_mask(dtype);
  NonFinite found;
  for (size_t i = 0; i < bytes.size() / size; ++i) {
    if ((load(dtype, bytes.data() + i * size) & mask) != mask) continue;
    if (found.count++ == 0) found.first = static_cast<int64_t>(i);
  }
  return found;
}

void convert(tn_dtype from, std::span<const std::byte> in, tn_dtype to, std::span<std::byte> out) {
  if (from == to) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  const size_t from_size = tn_dtype_size(from);
  const size_t to_size = tn_dtype_size(to);
  for (size_t i = 0; i < in.size() / from_size; ++i) {
    const double value = reference::decode(from, load(from, in.data() + i * from_size));
    store(to, reference::encode(to, value), out.data() + i * to_size);
  }
}

void fill_normal(tn_dtype dtype, uint64_t seed, std::span<std::byte> out) {
  const size_t size = tn_dtype_size(dtype);
  const uint64_t stream = splitmix64(seed);
  for (size_t i = 0; i < out.size() / size; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform(splitmix64(stream + 2 * i))));
    const double angle = 2.0 * std::numbers::pi * uniform(splitmix64(stream + 2 * i + 1));
    store(dtype, reference::encode(dtype, radius * std::cos(angle)), out.data() + i * size);
  }
}

void fill_with(tn_dtype dtype, double value, std::span<std::byte> out) {
  const size_t size = tn_dtype_size(dtype);
  const uint32_t bits = reference::encode(dtype, value);
  for (size_t at = 0; at < out.size(); at += size) store(dtype, bits, out.data() + at);
}

uint64_t checksum(std::span<const std::byte> bytes) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001B3U;
  return hash;
}

}  // namespace truenorm::cli
