// AVX-512 (F, BW, VL, DQ): sixteen floats. scalar.cpp explains the vocabulary.
#include <immintrin.h>

#include "cpu/isa.hpp"
#include "cpu/plan.hpp"
#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"

namespace truenorm::cpu::avx512 {
namespace {

struct Simd {
  using F = __m512;
  static constexpr int kWidth = 16;
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static constexpr std::uintptr_t kStreamAlignment = 64;
  template <bool kStream>
  static void store(float* p, F v) {
    if constexpr (kStream) {
      _mm512_stream_ps(p, v);
    } else {
      _mm512_storeu_ps(p, v);
    }
  }
  static void fence() { _mm_sfence(); }
  static F set(float v) { return _mm512_set1_ps(v); }

  static F evens(F a, F b) {
    const __m512i index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, index, b);
  }
  static F odds(F a, F b) {
    const __m512i index = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, index, b);
  }
  static F first_half(F even, F odd) {
    const __m512i index = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(even, index, odd);
  }
  static F second_half(F even, F odd) {
    const __m512i index = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(even, index, odd);
  }
  static float tree(F v) {
    v = add(v, _mm512_permute_ps(v, 0xb1));        // neighbours
    v = add(v, _mm512_permute_ps(v, 0x4e));        // pairs
    v = add(v, _mm512_shuffle_f32x4(v, v, 0xb1));  // quarters
    return _mm_cvtss_f32(_mm512_castps512_ps128(add(v, _mm512_shuffle_f32x4(v, v, 0x4e))));
  }

  static F load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <bool kStream>
  static void store_f16(std::uint16_t* p, F v) {
    const __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    if constexpr (kStream) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(p), h);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
    }
  }
  static F round_f16(F v) { return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

  static F load_bf16(const std::uint16_t* p) {
    const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
  }
  static F load_bf16_even(const std::uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  static F load_bf16_odd(const std::uint16_t* p) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  // Both at once on 16-bit lanes: the upper halves are rounded up where the lower halves, and for a tie the last bit
  // kept, say so. NaNs come from arithmetic, quiet already; those of all ones are kept from overflowing.
  template <bool kStream>
  static void store_bf16_split(std::uint16_t* p, F even, F odd) {
    constexpr __mmask32 kOdd = 0xaaaaaaaau;
    const __m512i e = _mm512_castps_si512(even), o = _mm512_castps_si512(odd);
    const __m512i upper = _mm512_mask_blend_epi16(kOdd, _mm512_srli_epi32(e, 16), o);
    const __m512i lower = _mm512_mask_blend_epi16(kOdd, e, _mm512_slli_epi32(o, 16));
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i nudged = _mm512_adds_epu16(lower, _mm512_and_si512(upper, one));
    const __mmask32 up = _mm512_cmpgt_epu16_mask(nudged, _mm512_set1_epi16(static_cast<short>(0x8000)));
    const __mmask32 safe = _mm512_mask_cmpneq_epi16_mask(up, upper, _mm512_set1_epi16(0x7fff));
    const __m512i rounded = _mm512_mask_adds_epu16(upper, safe, upper, one);
    if constexpr (kStream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(p), rounded);
    } else {
      _mm512_storeu_si512(p, rounded);
    }
  }
  // The rounded value in the upper half of each lane; the lower half is left over. (The bf16 conversion instruction
  // flushes subnormals, so it cannot serve.)
  static __m512i rounded_bf16(F v) {
    const __m512i b = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, nan, b, _mm512_set1_epi32(0x00400000));
  }
  static void store_bf16(std::uint16_t* p, F v) {
    const __m256i packed = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(v), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
  }
  static F round_bf16(F v) {
    return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(v), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

#include "cpu/targets/body.inc"

}  // namespace

const Kernels& kernels() { return kKernels; }

}  // namespace truenorm::cpu::avx512
