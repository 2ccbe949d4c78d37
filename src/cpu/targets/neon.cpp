// AArch64 NEON: four floats. scalar.cpp explains the vocabulary.
#include <arm_neon.h>

#include "cpu/isa.hpp"
#include "cpu/plan.hpp"
#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"

namespace truenorm::cpu::neon {
namespace {

struct Simd {
  using F = float32x4_t;
  static constexpr int kWidth = 4;
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F load(const float* p) { return vld1q_f32(p); }
  static constexpr std::uintptr_t kStreamAlignment = 1;
  template <bool kStream>
  static void store(float* p, F v) {
    vst1q_f32(p, v);
  }
  static void fence() {}
  static F set(float v) { return vdupq_n_f32(v); }
  static F evens(F a, F b) { return vuzp1q_f32(a, b); }
  static F odds(F a, F b) { return vuzp2q_f32(a, b); }
  static F first_half(F even, F odd) { return vzip1q_f32(even, odd); }
  static F second_half(F even, F odd) { return vzip2q_f32(even, odd); }
  static float tree(F v) {
    const F pairs = vpaddq_f32(v, v);
    return vgetq_lane_f32(vpaddq_f32(pairs, pairs), 0);
  }

  static F load_f16(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  template <bool kStream>
  static void store_f16(std::uint16_t* p, F v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
  }
  static F round_f16(F v) { return vcvt_f32_f16(vcvt_f16_f32(v)); }

  static F load_bf16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static F load_bf16_even(const std::uint16_t* p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p)), 16));
  }
  static F load_bf16_odd(const std::uint16_t* p) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p)), vdupq_n_u32(0xffff0000u)));
  }
  template <bool kStream>
  static void store_bf16_split(std::uint16_t* p, F even, F odd) {
    const uint32x4_t h = vsriq_n_u32(rounded_bf16(odd), rounded_bf16(even), 16);
    vst1q_u16(p, vreinterpretq_u16_u32(h));
  }
  // The rounded value in the upper half of each lane; the lower half is left over.
  static uint32x4_t rounded_bf16(F v) {
    const uint32x4_t b = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(b, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(b, vdupq_n_u32(0x00400000));
    return vbslq_u32(vceqq_f32(v, v), rounded, quiet);
  }
  static void store_bf16(std::uint16_t* p, F v) { vst1_u16(p, vshrn_n_u32(rounded_bf16(v), 16)); }
  static F round_bf16(F v) { return vreinterpretq_f32_u32(vandq_u32(rounded_bf16(v), vdupq_n_u32(0xffff0000u))); }
};

#include "cpu/targets/body.inc"

}  // namespace

const Kernels& kernels() { return kKernels; }

}  // namespace truenorm::cpu::neon
