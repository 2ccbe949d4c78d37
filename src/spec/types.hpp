// The storage types and their conversions to and from FP32, on bit patterns.
// Narrowing rounds to nearest, ties to even; subnormals and infinities are kept; a NaN stays a NaN (made quiet).
#pragma once

#include "spec/config.hpp"

namespace truenorm::spec {

enum class Type : std::int32_t { f32 = 1, f16 = 2, bf16 = 3 };  // the values of tn_dtype

TN_FN std::uint32_t bits_of(float v) { return __builtin_bit_cast(std::uint32_t, v); }
TN_FN float float_of(std::uint32_t b) { return __builtin_bit_cast(float, b); }

TN_FN float widen_bf16(std::uint16_t h) { return float_of(static_cast<std::uint32_t>(h) << 16); }

TN_FN std::uint16_t narrow_bf16(float v) {
  const std::uint32_t b = bits_of(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((b >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

TN_FN float widen_f16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return float_of(sign | 0x7f800000u | ((magnitude & 0x03ffu) << 13) | (magnitude > 0x7c00u ? 0x00400000u : 0u));
  if (magnitude >= 0x0400u) return float_of(sign | ((magnitude + (112u << 10)) << 13));
  // Subnormal: magnitude * 2^-24, exact in FP32.
  return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
}

TN_FN std::uint16_t narrow_f16(float v) {
  const std::uint32_t b = bits_of(v);
  const auto sign = static_cast<std::uint16_t>((b >> 16) & 0x8000u);
  const std::uint32_t magnitude = b & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x03ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // from 65520 up: infinity
  if (magnitude >= 0x38800000u) {                                                   // normal in FP16
    const std::uint32_t rounded = magnitude + 0x0fffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
  }
  // Subnormal or zero: units of 2^-24. Adding 0.5 brings that unit to FP32's last bit, so that the add itself rounds.
  const float shifted = float_of(magnitude) + 0.5f;
  return static_cast<std::uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
}

// v rounded to a storage type, as FP32 again.
TN_FN float round_to(Type t, float v) {
  if (t == Type::bf16) return widen_bf16(narrow_bf16(v));
  if (t == Type::f16) return widen_f16(narrow_f16(v));
  return v;
}

}  // namespace truenorm::spec
