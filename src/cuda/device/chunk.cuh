// Eight neighbouring elements of a row, the unit of a thread's work: how they are loaded, kept and stored.
//
// A kernel is compiled for matrices of one 16-bit type, which it keeps packed, or for FP32, which it keeps as floats
// and which stands for every mixture: there each operand's type is a run-time value, the same for all threads of a
// launch.
#pragma once

#include "cuda/device/convert.cuh"

namespace truenorm::cuda {

__device__ __forceinline__ bool aligned16(const void* p) {
  return (reinterpret_cast<unsigned long long>(p) & 15u) == 0;
}

// ---- What a thread keeps of a matrix.

template <Type kType>
struct Chunk {
  uint4 raw = {0u, 0u, 0u, 0u};
  __device__ __forceinline__ void values(float (&v)[kChunk]) const { widen8(kType, raw, v); }
  __device__ __forceinline__ void set(const float (&v)[kChunk]) { raw = narrow8(kType, v); }
};
template <>
struct Chunk<Type::f32> {
  float v[kChunk] = {};
  __device__ __forceinline__ void values(float (&out)[kChunk]) const {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) out[i] = v[i];
  }
  __device__ __forceinline__ void set(const float (&in)[kChunk]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = in[i];
  }
};

// ---- Memory.

template <Type kType>
__device__ __forceinline__ int bytes_each(Type type) {
  return kType != Type::f32 || type != Type::f32 ? 2 : 4;
}

__device__ __forceinline__ float load1(Type type, const std::byte* row, std::int64_t i) {
  if (type == Type::f32) return reinterpret_cast<const float*>(row)[i];
  return widen2(type, reinterpret_cast<const unsigned short*>(row)[i]).x;
}

__device__ __forceinline__ void store1(Type type, std::byte* row, std::int64_t i, float v) {
  if (type == Type::f32) {
    reinterpret_cast<float*>(row)[i] = v;
  } else {
    reinterpret_cast<unsigned short*>(row)[i] = static_cast<unsigned short>(narrow2(type, v, 0.0f));
  }
}

// Eight elements at p, which is aligned to 16 bytes; in global or shared memory.
template <Type kType>
__device__ __forceinline__ Chunk<kType> load_whole(Type type, const std::byte* p) {
  Chunk<kType> c;
  if constexpr (kType != Type::f32) {
    c.raw = *reinterpret_cast<const uint4*>(p);
  } else if (type == Type::f32) {
    const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
    c.v[0] = a.x, c.v[1] = a.y, c.v[2] = a.z, c.v[3] = a.w;
    c.v[4] = b.x, c.v[5] = b.y, c.v[6] = b.z, c.v[7] = b.w;
  } else {
    widen8(type, *reinterpret_cast<const uint4*>(p), c.v);
  }
  return c;
}

// Elements [first, first + kChunk) of a row, those at or past n being +0.
template <Type kType>
__device__ __forceinline__ Chunk<kType> load_part(Type type, const std::byte* row, int n, int first) {
  float v[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = first + i < n ? load1(type, row, first + i) : 0.0f;
  Chunk<kType> c;
  c.set(v);
  return c;
}

// Out of line: few matrices have rows on two levels, and a kernel has many places that ask for a row.
__device__ __noinline__ inline std::int64_t row_on_two_levels(unsigned int row, unsigned int inner,
                                                              std::int64_t inner_stride, std::int64_t outer_stride) {
  const unsigned int outer = row / inner;
  return outer * outer_stride + (row - outer * inner) * inner_stride;
}

// Row r of a matrix. In a kernel with kWhole there are fewer than 2^31 rows.
template <bool kWhole>
__device__ __forceinline__ std::byte* row_at(const Rows& t, std::int64_t r) {
  if constexpr (!kWhole) return spec::row_of(t, r);
  const auto row = static_cast<unsigned int>(r);
  if (row < t.inner) return t.data + row * t.inner_stride;
  return t.data + row_on_two_levels(row, static_cast<unsigned int>(t.inner), t.inner_stride, t.outer_stride);
}

// In a kernel with kWhole every row starts at a multiple of 16 bytes and has whole chunks only, so that a chunk is all
// there (first < n) or not at all.

// A thread's chunks of a row, chunk c from column first + c * step; elements at or past n are +0. All loads are on
// their way before any of them is needed.
template <Type kType, bool kWhole, int C>
__device__ __forceinline__ void load_chunks(Type type, const std::byte* row, int n, int first, int step,
                                            Chunk<kType> (&v)[C]) {
  const int size = bytes_each<kType>(type);
  const std::byte* const p = row + std::int64_t{first} * size;
  [[maybe_unused]] const bool aligned = kWhole || aligned16(row);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int at = first + c * step;
    if constexpr (kWhole) {
      v[c] = at < n ? load_whole<kType>(type, p + c * step * size) : Chunk<kType>{};
    } else {
      v[c] = aligned && at + kChunk <= n ? load_whole<kType>(type, p + c * step * size)
                                         : load_part<kType>(type, row, n, at);
    }
  }
}

// Eight values rounded to the type and stored at `to`, which is aligned to 16 bytes.
template <Type kType>
__device__ __forceinline__ void store_whole(Type type, std::byte* to, const float (&v)[kChunk]) {
  if (kType != Type::f32) {
    *reinterpret_cast<uint4*>(to) = narrow8(kType, v);
  } else if (type != Type::f32) {
    *reinterpret_cast<uint4*>(to) = narrow8(type, v);
  } else {
    auto* const p = reinterpret_cast<float4*>(to);
    p[0] = make_float4(v[0], v[1], v[2], v[3]);
    p[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
}

// FP32 of lanes that have neighbouring chunks of a row, at least two, by pairs of lanes, which swap halves so that
// sectors of 32 bytes are stored whole: halves of them cost up to twice the time. All of the warp call. `to`: this
// lane's chunk, aligned to 16 bytes; `left`: elements of the row from there on, 0 or less past its end, as far as that
// is, and -kChunk or less of no row at all; `store`: (where, what).
template <class Store>
__device__ __forceinline__ void store_pairs(float* to, int left, int lane, const float (&v)[kChunk],
                                            const Store& store) {
  const bool odd = (lane & 1) != 0;
  float other[4], one[4], two[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    other[i] = __shfl_xor_sync(0xffffffffu, odd ? v[i] : v[4 + i], 1);
    one[i] = odd ? other[i] : v[i];
    two[i] = odd ? v[4 + i] : other[i];
  }
  // Of both lanes' chunks: where the first half that this lane stores lies, and what there is from the first chunk on.
  auto* const at = reinterpret_cast<float4*>(to) - (odd ? 1 : 0);
  if (odd) left += kChunk;
  if (left > 0) store(at, make_float4(one[0], one[1], one[2], one[3]));
  if (left > kChunk) store(at + 2, make_float4(two[0], two[1], two[2], two[3]));
}

// Eight values rounded to the type and stored by lanes as store_pairs has them; all of the warp call.
template <Type kType>
__device__ __forceinline__ void store_beside(Type type, std::byte* to, int left, int lane, const float (&v)[kChunk]) {
  if (kType == Type::f32 && type == Type::f32) {
    store_pairs(reinterpret_cast<float*>(to), left, lane, v, [](float4* where, const float4& what) { *where = what; });
  } else if (left > 0) {
    store_whole<kType>(type, to, v);
  }
}

// Values rounded to the type and stored; elements at or past n are not.
template <Type kType, bool kWhole>
__device__ __forceinline__ void store_chunk(Type type, std::byte* row, int n, int first, const float (&v)[kChunk]) {
  if (kWhole ? first < n : first + kChunk <= n && aligned16(row)) {
    store_whole<kType>(type, row + std::int64_t{first} * bytes_each<kType>(type), v);
  } else if constexpr (!kWhole) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (first + i < n) store1(type, row, first + i, v[i]);
    }
  }
}

}  // namespace truenorm::cuda
