// Weights and biases as a thread keeps them: packed as they are stored, so that their loads may be under way while the
// row's sums are made, and few registers are taken.
#pragma once

#include "cuda/device/chunk.cuh"
#include "spec/norm.hpp"

namespace truenorm::cuda {

using Elements = spec::Elements<spec::Scalar>;

template <bool kWhole>
struct PackedVec {
  uint4 low = {0u, 0u, 0u, 0u};
  uint4 high = {0u, 0u, 0u, 0u};  // the second half of FP32

  __device__ __forceinline__ void load(const Vec& v, int n, int first) {
    if (!v.present) return;
    if (kWhole ? first < n : first + kChunk <= n && aligned16(v.data)) {
      const auto* p = reinterpret_cast<const uint4*>(v.data + std::int64_t{first} * spec::size_of(v.type));
      low = __ldca(p);  // an ordinary load, for which the compiler finds registers as it does for __ldg
      if (v.type == Type::f32) high = __ldca(p + 1);
    } else if constexpr (!kWhole) {
      float e[kChunk];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) e[i] = first + i < n ? load1(v.type, v.data, first + i) : 0.0f;
      if (v.type == Type::f32) {
        low = make_uint4(__float_as_uint(e[0]), __float_as_uint(e[1]), __float_as_uint(e[2]), __float_as_uint(e[3]));
        high = make_uint4(__float_as_uint(e[4]), __float_as_uint(e[5]), __float_as_uint(e[6]), __float_as_uint(e[7]));
      } else {
        low = narrow8(v.type, e);
      }
    }
  }

  __device__ __forceinline__ void values(const Vec& v, float (&e)[kChunk]) const {
    values_of_halves(v.type, low, high, e);
  }

  // weight + offset; ones where there is no weight. `offset` as effective_offset gives it.
  __device__ __forceinline__ void weights(const Vec& weight, float offset, float (&w)[kChunk]) const {
    if (!weight.present) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) w[i] = spec::kNoWeight;
      return;
    }
    values(weight, w);
    if (offset == 0.0f) return;  // -0: it changes nothing
#pragma unroll
    for (int i = 0; i < kChunk; ++i) w[i] = Elements::effective_weight(w[i], offset);
  }

  // The bias, or what stands for none.
  __device__ __forceinline__ void addends(const Vec& bias, float (&b)[kChunk]) const {
    if (!bias.present) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) b[i] = spec::kNoAddend;
      return;
    }
    values(bias, b);
  }
};

template <bool kWhole>
__device__ __forceinline__ PackedVec<kWhole> load_packed(const Vec& v, int n, int first) {
  PackedVec<kWhole> packed;
  packed.load(v, n, first);
  return packed;
}

}  // namespace truenorm::cuda
