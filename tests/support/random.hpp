// Reproducible random numbers and data of many kinds.
#pragma once

#include <cstdint>

#include "support/tensor.hpp"

namespace truenorm::test {

// splitmix64 (Steele, Lea & Flood 2014).
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }  // inclusive
  bool chance(double p) { return uniform() < p; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  // Mean 0, standard deviation 1: twelve uniforms, near enough to a normal distribution.
  double normal();

 private:
  std::uint64_t state_;
};

enum class Fill {
  normal,
  large_mean,  // a spread of 1 around 2000
  tiny,        // around 1e-20
  huge,        // squares overflow FP32 (FP16: thousands)
  subnormal,   // of the type
  special,     // normal, with NaNs, infinities and zeros among them
  zeros,       // of both signs
  mixed,       // magnitudes from 1e-21 to 1e18: products underflow, squares do not overflow
  raw          // any bit pattern
};
inline constexpr int kFills = 9;

void fill(const tn_tensor& t, Rng& rng, Fill kind);
// The kind is drawn for each row, mostly `normal`.
void fill_any(const tn_tensor& t, Rng& rng);

}  // namespace truenorm::test
