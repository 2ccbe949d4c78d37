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
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  // On a whole vector of floats, of which a vector of a 16-bit type is half.
  static bool can_stream(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }
  static void stream(float* p, F v) { _mm512_stream_ps(p, v); }
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
  static float tree(F v) {
    v = add(v, _mm512_permute_ps(v, 0xb1));        // neighbours
    v = add(v, _mm512_permute_ps(v, 0x4e));        // pairs
    v = add(v, _mm512_shuffle_f32x4(v, v, 0xb1));  // quarters
    return _mm_cvtss_f32(_mm512_castps512_ps128(add(v, _mm512_shuffle_f32x4(v, v, 0x4e))));
  }

  static F load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(std::uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void stream_f16(std::uint16_t* p, F v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static F round_f16(F v) { return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

  static F load_bf16(const std::uint16_t* p) {
    const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
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
  static __m256i packed_bf16(F v) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(v), 16)); }
  static void store_bf16(std::uint16_t* p, F v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed_bf16(v)); }
  static void stream_bf16(std::uint16_t* p, F v) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), packed_bf16(v)); }
  static F round_bf16(F v) {
    return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(v), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

#include "cpu/targets/body.inc"

}  // namespace

const Kernels& kernels() { return kKernels; }

}  // namespace truenorm::cpu::avx512
