// Weights and biases as a thread keeps them: packed as they are stored, so that their loads may be under way while the
// row's sums are made, and few registers are taken.
#pragma once

#include "cuda/device/chunk.cuh"
#include "spec/norm.hpp"

namespace truenorm::cuda {

using Elements = spec::Elements<spec::Scalar>;

struct PackedVec {
  uint4 low = {0u, 0u, 0u, 0u}, high = {0u, 0u, 0u, 0u};  // high: the second half of FP32
};

template <bool kWhole>
__device__ __forceinline__ PackedVec load_packed(const Vec& v, int n, int first) {
  PackedVec w;
  if (!v.present) return w;
  if (kWhole ? first < n : first + kChunk <= n && aligned16(v.data)) {
    const auto* p = reinterpret_cast<const uint4*>(v.data + first * spec::size_of(v.type));
    w.low = __ldg(p);
    if (v.type == Type::f32) w.high = __ldg(p + 1);
    return w;
  }
  if constexpr (!kWhole) {
    float e[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) e[i] = first + i < n ? load1(v.type, v.data, first + i) : 0.0f;
    if (v.type == Type::f32) {
      w.low = make_uint4(__float_as_uint(e[0]), __float_as_uint(e[1]), __float_as_uint(e[2]), __float_as_uint(e[3]));
      w.high = make_uint4(__float_as_uint(e[4]), __float_as_uint(e[5]), __float_as_uint(e[6]), __float_as_uint(e[7]));
    } else {
      w.low = narrow8(v.type, e);
    }
  }
  return w;
}

__device__ __forceinline__ void unpack(const Vec& v, const PackedVec& w, float (&e)[kChunk]) {
  if (v.type == Type::f32) {
    e[0] = __uint_as_float(w.low.x), e[1] = __uint_as_float(w.low.y), e[2] = __uint_as_float(w.low.z);
    e[3] = __uint_as_float(w.low.w), e[4] = __uint_as_float(w.high.x), e[5] = __uint_as_float(w.high.y);
    e[6] = __uint_as_float(w.high.z), e[7] = __uint_as_float(w.high.w);
  } else {
    widen8(v.type, w.low, e);
  }
}

// weight + offset; ones where there is no weight. `offset` as effective_offset gives it.
__device__ __forceinline__ void effective_weights(const Vec& weight, float offset, const PackedVec& packed,
                                                  float (&w)[kChunk]) {
  if (!weight.present) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) w[i] = spec::kNoWeight;
    return;
  }
  unpack(weight, packed, w);
  if (offset == 0.0f) return;  // -0: it changes nothing
#pragma unroll
  for (int i = 0; i < kChunk; ++i) w[i] = Elements::effective_weight(w[i], offset);
}

// The bias, or what stands for none.
__device__ __forceinline__ void addends(const Vec& bias, const PackedVec& packed, float (&b)[kChunk]) {
  if (!bias.present) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) b[i] = spec::kNoAddend;
    return;
  }
  unpack(bias, packed, b);
}

}  // namespace truenorm::cuda
