// FP32 arithmetic, spelled out: each function is one IEEE operation, rounded once to nearest even.
// `Scalar` is these operations as a type; the formulas in reduce.hpp and norm.hpp are written over such a type, so that
// plain floats, SIMD vectors and CUDA threads all evaluate the very same expression.
#pragma once

#include <type_traits>

#include "spec/types.hpp"

namespace truenorm::spec {

// a * b + c with one rounding, in constant expressions, where the compiler's fma may not be available: the product is
// exact in FP64; the sum is rounded to odd in FP64, which has more than two spare bits, so rounding again is harmless.
TN_FN float fma_emulated(float a, float b, float c) {
  const double p = static_cast<double>(a) * static_cast<double>(b);
  const double z = static_cast<double>(c);
  const double s = p + z;
  if (!(s - s == 0.0)) return static_cast<float>(s);  // infinity or NaN
  const double zz = s - p;
  const double error = (p - (s - zz)) + (z - zz);
  auto bits = __builtin_bit_cast(std::uint64_t, s);
  if (error != 0.0 && (bits & 1u) == 0) bits = (error > 0.0) == (s > 0.0) ? bits + 1 : bits - 1;
  return static_cast<float>(__builtin_bit_cast(double, bits));
}

// The square root in constant expressions: Newton's iteration in FP64, whose last-bit error cannot move the FP32
// result.
TN_FN float sqrt_emulated(float v) {
  if (!(v > 0.0f) || v > 0x1.fffffep127f) return v >= 0.0f ? v : float_of(0x7fc00000u);
  const auto x = static_cast<double>(v);
  double r = __builtin_bit_cast(double, (__builtin_bit_cast(std::uint64_t, x) >> 1) + 0x1ff8000000000000u);
  for (int i = 0; i < 6; ++i) r = 0.5 * (r + x / r);
  return static_cast<float>(r);
}

struct Scalar {
  using F = float;
#if defined(__CUDA_ARCH__)
  static TN_FN F add(F a, F b) { return __fadd_rn(a, b); }
  static TN_FN F sub(F a, F b) { return __fsub_rn(a, b); }
  static TN_FN F mul(F a, F b) { return __fmul_rn(a, b); }
  static TN_FN F div(F a, F b) { return __fdiv_rn(a, b); }
  static TN_FN F fma(F a, F b, F c) { return __fmaf_rn(a, b, c); }
  static TN_FN F sqrt(F a) { return __fsqrt_rn(a); }
#else
  static TN_FN F add(F a, F b) { return a + b; }
  static TN_FN F sub(F a, F b) { return a - b; }
  static TN_FN F mul(F a, F b) { return a * b; }
  static TN_FN F div(F a, F b) { return a / b; }
  static TN_FN F fma(F a, F b, F c) {
    return std::is_constant_evaluated() ? fma_emulated(a, b, c) : __builtin_fmaf(a, b, c);
  }
  static TN_FN F sqrt(F a) { return std::is_constant_evaluated() ? sqrt_emulated(a) : __builtin_sqrtf(a); }
#endif
};

}  // namespace truenorm::spec
