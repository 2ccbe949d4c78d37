// Eight elements of a storage type and FP32.
#pragma once

#include <cuda_runtime.h>

#include "spec/call.hpp"

namespace truenorm::cuda {

using spec::Rows;
using spec::Type;
using spec::Vec;

inline constexpr int kChunk = 8;

// Two 16-bit elements share a word, low half first.

__device__ __forceinline__ float2 widen2(Type type, unsigned int w) {
  float2 v;
  if (type == Type::bf16) {
    v.x = __uint_as_float(w << 16);
    v.y = __uint_as_float(w & 0xffff0000u);
  } else {
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(v.x), "=f"(v.y)
        : "r"(w));
  }
  return v;
}

// To nearest, ties to even; subnormals kept.
__device__ __forceinline__ unsigned int narrow2(Type type, float lo, float hi) {
  unsigned int w;
  if (type == Type::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
  }
  return w;
}

__device__ __forceinline__ void widen8(Type type, const uint4& raw, float (&v)[kChunk]) {
  const unsigned int words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = widen2(type, words[i]);
    v[2 * i] = pair.x;
    v[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ uint4 narrow8(Type type, const float (&v)[kChunk]) {
  return make_uint4(narrow2(type, v[0], v[1]), narrow2(type, v[2], v[3]), narrow2(type, v[4], v[5]),
                    narrow2(type, v[6], v[7]));
}

// Sixteen bytes of a 16-bit type, or FP32's two halves.
__device__ __forceinline__ void values_of_halves(Type type, const uint4& low, const uint4& high, float (&v)[kChunk]) {
  if (type != Type::f32) return widen8(type, low, v);
  v[0] = __uint_as_float(low.x), v[1] = __uint_as_float(low.y), v[2] = __uint_as_float(low.z);
  v[3] = __uint_as_float(low.w), v[4] = __uint_as_float(high.x), v[5] = __uint_as_float(high.y);
  v[6] = __uint_as_float(high.z), v[7] = __uint_as_float(high.w);
}

__device__ __forceinline__ uint4 select(bool wanted, const uint4& a, const uint4& b) {
  return make_uint4(wanted ? a.x : b.x, wanted ? a.y : b.y, wanted ? a.z : b.z, wanted ? a.w : b.w);
}

// v rounded to a storage type, as FP32 again.
__device__ __forceinline__ void round8(Type type, float (&v)[kChunk]) {
  if (type != Type::f32) widen8(type, narrow8(type, v), v);
}

}  // namespace truenorm::cuda
