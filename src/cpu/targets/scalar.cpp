// Plain floats: any machine, and the shape that the SIMD vocabularies share.
//
// The vocabulary: kWidth floats per F; load/store at any element alignment; stream stores past the caches where
// aligned() allows; evens/odds take every other element of the concatenation of two vectors; tree sums one vector in
// the neighbour-first order; round_* rounds to a storage type and widens again.
#include "cpu/isa.hpp"
#include "cpu/plan.hpp"
#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"

namespace truenorm::cpu::scalar {
namespace {

struct Simd : spec::Scalar {
  static constexpr int kWidth = 1;
  static F load(const float* p) { return *p; }
  static constexpr std::uintptr_t kStreamAlignment = 1;
  template <bool kStream>
  static void store(float* p, F v) {
    *p = v;
  }
  static void fence() {}
  static F set(float v) { return v; }
  static F evens(F a, F) { return a; }
  static F odds(F, F b) { return b; }
  static F first_half(F even, F) { return even; }
  static F second_half(F, F odd) { return odd; }
  static float tree(F v) { return v; }
  static F load_f16(const std::uint16_t* p) { return spec::widen_f16(*p); }
  static F load_bf16(const std::uint16_t* p) { return spec::widen_bf16(*p); }
  static F load_bf16_even(const std::uint16_t* p) { return spec::widen_bf16(p[0]); }
  static F load_bf16_odd(const std::uint16_t* p) { return spec::widen_bf16(p[1]); }
  template <bool kStream>
  static void store_f16(std::uint16_t* p, F v) {
    *p = spec::narrow_f16(v);
  }
  template <bool kStream>
  static void store_bf16_split(std::uint16_t* p, F even, F odd) {
    p[0] = spec::narrow_bf16(even);
    p[1] = spec::narrow_bf16(odd);
  }
  static void store_bf16(std::uint16_t* p, F v) { *p = spec::narrow_bf16(v); }
  static F round_f16(F v) { return spec::widen_f16(spec::narrow_f16(v)); }
  static F round_bf16(F v) { return spec::widen_bf16(spec::narrow_bf16(v)); }
};

#include "cpu/targets/body.inc"

}  // namespace

const Kernels& kernels() { return kKernels; }

}  // namespace truenorm::cpu::scalar
