// AVX2 with FMA and F16C: eight floats. scalar.cpp explains the vocabulary.
#include <immintrin.h>

#include "cpu/isa.hpp"
#include "cpu/plan.hpp"
#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"

namespace truenorm::cpu::avx2 {
namespace {

struct Simd {
  using F = __m256;
  static constexpr int kWidth = 8;
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static constexpr std::uintptr_t kStreamAlignment = 32;
  template <bool kStream>
  static void store(float* p, F v) {
    if constexpr (kStream) {
      _mm256_stream_ps(p, v);
    } else {
      _mm256_storeu_ps(p, v);
    }
  }
  static void fence() { _mm_sfence(); }
  static F set(float v) { return _mm256_set1_ps(v); }

  // 128-bit shuffles give a0 a2 b0 b2 | a4 a6 b4 b6; swapping the middle quarters puts them in order.
  static F in_order(F v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)); }
  static F evens(F a, F b) { return in_order(_mm256_shuffle_ps(a, b, 0x88)); }
  static F odds(F a, F b) { return in_order(_mm256_shuffle_ps(a, b, 0xdd)); }
  static F first_half(F even, F odd) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd), 0x20);
  }
  static F second_half(F even, F odd) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd), 0x31);
  }
  static float tree(F v) {
    v = add(v, _mm256_permute_ps(v, 0xb1));  // neighbours
    v = add(v, _mm256_permute_ps(v, 0x4e));  // pairs
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
  }

  static F load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  template <bool kStream>
  static void store_f16(std::uint16_t* p, F v) {
    const __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    if constexpr (kStream) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(p), h);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), h);
    }
  }
  static F round_f16(F v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

  static F load_bf16(const std::uint16_t* p) {
    const __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
  }
  static F load_bf16_even(const std::uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));
  }
  static F load_bf16_odd(const std::uint16_t* p) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <bool kStream>
  static void store_bf16_split(std::uint16_t* p, F even, F odd) {
    const __m256i h = _mm256_blend_epi16(_mm256_srli_epi32(rounded_bf16(even), 16), rounded_bf16(odd), 0xaa);
    if constexpr (kStream) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(p), h);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
    }
  }
  // The rounded value in the upper half of each lane; the lower half is left over.
  static __m256i rounded_bf16(F v) {
    const __m256i b = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(b, _mm256_set1_epi32(0x00400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
  }
  static void store_bf16(std::uint16_t* p, F v) {
    const __m256i h = _mm256_srli_epi32(rounded_bf16(v), 16);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }
  static F round_bf16(F v) {
    return _mm256_castsi256_ps(_mm256_and_si256(rounded_bf16(v), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

#include "cpu/targets/body.inc"

}  // namespace

const Kernels& kernels() { return kKernels; }

}  // namespace truenorm::cpu::avx2
