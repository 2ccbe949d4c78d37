#include "reference/format.hpp"

#include <stdexcept>

namespace truenorm::reference {
namespace {

// Exponent bits of the encodings.
int exponent_bits(tn_dtype dtype) { return dtype == TN_F16 ? 5 : 8; }

// The place of a value in the format's ordering: 0, then 1 for the smallest subnormal, and so on.
int64_t place(const Format& format, double value) {
  const double magnitude = std::fabs(finite_stand_in(format, value));
  const int exponent = clamped_exponent(format, magnitude);
  const int64_t steps_per_binade = int64_t{1} << (format.precision - 1);
  const auto steps = static_cast<int64_t>(magnitude / power_of_two(exponent - (format.precision - 1)));
  const int64_t position = (exponent - format.min_exponent) * steps_per_binade + steps;
  return std::signbit(value) ? -position : position;
}

}  // namespace

const Format& format_of(tn_dtype dtype) {
  switch (dtype) {
    case TN_F32: return kF32;
    case TN_F16: return kF16;
    case TN_BF16: return kBf16;
    default: throw std::invalid_argument("the oracle knows no such type");
  }
}

int64_t ulp_distance(const Format& format, double a, double b) {
  const int64_t difference = place(format, a) - place(format, b);
  return difference < 0 ? -difference : difference;
}

uint32_t encode(tn_dtype dtype, double value) {
  const Format& format = format_of(dtype);
  const int fraction_bits = format.precision - 1;
  const uint32_t sign = std::signbit(value) ? 1U << (fraction_bits + exponent_bits(dtype)) : 0U;
  const uint32_t infinity = ((1U << exponent_bits(dtype)) - 1U) << fraction_bits;
  if (std::isnan(value)) return infinity | (1U << (fraction_bits - 1));
  // The encodings count up in the order of the values, and infinity comes right after the largest finite number.
  return sign | static_cast<uint32_t>(place(format, std::fabs(round_to(format, value))));
}

double decode(tn_dtype dtype, uint32_t bits) {
  const Format& format = format_of(dtype);
  const int fraction_bits = format.precision - 1;
  const uint32_t exponent_mask = (1U << exponent_bits(dtype)) - 1U;
  const uint32_t exponent_field = (bits >> fraction_bits) & exponent_mask;
  const uint32_t fraction = bits & ((1U << fraction_bits) - 1U);
  const double sign = ((bits >> (fraction_bits + exponent_bits(dtype))) & 1U) != 0 ? -1.0 : 1.0;
  if (exponent_field == exponent_mask) {
    const double special =
        fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return sign * special;
  }
  const int exponent =
      exponent_field == 0 ? format.min_exponent : static_cast<int>(exponent_field) - 1 + format.min_exponent;
  const double significand = exponent_field == 0 ? fraction : fraction + (1U << fraction_bits);
  return sign * significand * power_of_two(exponent - fraction_bits);
}

}  // namespace truenorm::reference
