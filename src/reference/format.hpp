// The storage formats, as sets of doubles: every value of FP32, FP16 and BF16 is a double, so the oracle rounds and
// compares in FP64 and only meets bit patterns where tensors are read and written.
// Facts from IEEE 754-2019, table 3.5 (binary16, binary32); bfloat16 is the upper half of binary32.
#pragma once

#include <truenorm/truenorm.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace truenorm::reference {

// A binary format with subnormals and infinities.
struct Format {
  int precision;     // significant bits, the hidden one included
  int min_exponent;  // of the smallest normal number, 2^min_exponent
  int max_exponent;  // of the largest finite number, which lies just below 2^(max_exponent + 1)
};

inline constexpr Format kF32{24, -126, 127};
inline constexpr Format kF16{11, -14, 15};
inline constexpr Format kBf16{8, -126, 127};

// Throws std::invalid_argument for anything but TN_F32, TN_F16 and TN_BF16.
const Format& format_of(tn_dtype dtype);

// 2^exponent, for the exponents of normal doubles.
inline double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

// The exponent of the binade that `value` lies in, no smaller than the format's least (its subnormals share that
// binade's spacing) and no larger than the one above its greatest.
inline int clamped_exponent(const Format& format, double value) {
  const int exponent = static_cast<int>((std::bit_cast<uint64_t>(value) >> 52) & 0x7FF) - 1023;
  return std::clamp(exponent, format.min_exponent, format.max_exponent + 1);
}

// `value` rounded to the format, nearest even, straight from FP64. From half a step beyond the largest finite number
// on it is infinite; NaN stays NaN; the sign of zero is kept.
inline double round_to(const Format& format, double value) {
  // At 1.5 * 2^52 steps doubles are one step apart, so this addition rounds to a whole number of steps.
  const double magic = 1.5 * power_of_two(clamped_exponent(format, value) - (format.precision - 1) + 52);
  const double rounded = (value + magic) - magic;
  const bool overflow = std::fabs(rounded) >= power_of_two(format.max_exponent) * 2;
  return std::copysign(overflow ? std::numeric_limits<double>::infinity() : rounded, value);
}

// The distance between neighbours in the format around a finite `value` (in the binade that contains it).
inline double spacing(const Format& format, double value) {
  return power_of_two(std::min(clamped_exponent(format, value), format.max_exponent) - (format.precision - 1));
}

// How many steps of the format lie between two of its values; infinity is one step beyond the largest finite number.
// Neither may be NaN.
int64_t ulp_distance(const Format& format, double a, double b);

// `value` with infinity replaced by the power of two where the format overflows, so that errors stay finite.
inline double finite_stand_in(const Format& format, double value) {
  return std::isinf(value) ? std::copysign(power_of_two(format.max_exponent) * 2, value) : value;
}

// The bit pattern of `value` rounded to `dtype` (in the low 16 bits for the 16-bit types). NaN gives a quiet NaN.
uint32_t encode(tn_dtype dtype, double value);

// The value of a bit pattern, exactly.
double decode(tn_dtype dtype, uint32_t bits);

}  // namespace truenorm::reference
