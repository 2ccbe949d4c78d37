#include "support/random.hpp"

#include <cmath>

namespace truenorm::test {

std::uint64_t Rng::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Rng::normal() {
  std::int64_t sum = 0;  // twelve 16-bit uniforms
  for (int i = 0; i < 3; ++i) {
    for (std::uint64_t bits = next(), k = 0; k < 4; ++k, bits >>= 16) sum += static_cast<std::int64_t>(bits & 0xffffu);
  }
  return static_cast<double>(sum - 6 * 0xffff) / 65536.0;
}

namespace {

std::uint32_t random_subnormal(tn_dtype type, Rng& rng) {
  const std::uint64_t r = rng.next();
  const auto magnitude = static_cast<std::uint32_t>(r >> 1);
  if (type == TN_F32) return static_cast<std::uint32_t>(r & 1u) << 31 | (magnitude & 0x007fffffu);
  return static_cast<std::uint32_t>(r & 1u) << 15 | (magnitude & (type == TN_F16 ? 0x03ffu : 0x007fu));
}

float special_value(Rng& rng) {
  switch (rng.below(4)) {
    case 0: return std::nanf("");
    case 1: return INFINITY;
    case 2: return -INFINITY;
    default: return -0.0f;
  }
}

std::uint32_t sample(tn_dtype type, Rng& rng, Fill kind) {
  switch (kind) {
    case Fill::large_mean: return narrowed(type, static_cast<float>(2000.0 + rng.normal()));
    case Fill::tiny: return narrowed(type, static_cast<float>(rng.normal() * 1e-20));
    case Fill::huge: return narrowed(type, static_cast<float>(rng.normal() * (type == TN_F16 ? 2e4 : 3e19)));
    case Fill::subnormal: return random_subnormal(type, rng);
    case Fill::special:
      if (rng.chance(0.03)) return narrowed(type, special_value(rng));
      break;
    case Fill::zeros: return narrowed(type, rng.chance(0.5) ? 0.0f : -0.0f);
    case Fill::mixed:
      return narrowed(type, static_cast<float>(std::ldexp(rng.normal(), static_cast<int>(rng.between(-70, 60)))));
    case Fill::raw: return static_cast<std::uint32_t>(rng.next()) >> (type == TN_F32 ? 0 : 16);
    case Fill::normal: break;
  }
  return narrowed(type, static_cast<float>(rng.normal()));
}

void fill_row(const tn_tensor& t, std::int64_t row, Rng& rng, Fill kind) {
  for (std::int64_t c = 0; c < columns_of(t); ++c) set_bits(t, row, c, sample(t.dtype, rng, kind));
}

}  // namespace

void fill(const tn_tensor& t, Rng& rng, Fill kind) {
  for (std::int64_t r = 0; r < rows_of(t); ++r) fill_row(t, r, rng, kind);
}

void fill_any(const tn_tensor& t, Rng& rng) {
  const double share = rng.uniform() * rng.uniform();
  for (std::int64_t r = 0; r < rows_of(t); ++r) {
    fill_row(t, r, rng, rng.chance(share) ? static_cast<Fill>(rng.below(kFills)) : Fill::normal);
  }
}

}  // namespace truenorm::test
