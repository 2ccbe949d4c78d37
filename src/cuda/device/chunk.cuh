// Eight neighbouring elements of a row, the unit of a thread's work: how they are loaded, kept and stored.
//
// A kernel is compiled for matrices of one 16-bit type, which it keeps packed, or for FP32, which it keeps as floats
// and which stands for every mixture: there each operand's type is a run-time value, the same for all threads of a
// launch.
#pragma once

#include <type_traits>

#include "cuda/device/pieces.cuh"

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
  const auto* const halves = reinterpret_cast<const uint4*>(p);
  Chunk<kType> c;
  if constexpr (kType != Type::f32) {
    c.raw = halves[0];
  } else {
    values_of_halves(type, halves[0], type == Type::f32 ? halves[1] : halves[0], c.v);
  }
  return c;
}

// Out of line: few matrices have rows on two levels, and a kernel has many places that ask for a row.
template <class Number>
__device__ __noinline__ std::int64_t row_on_two_levels(Number row, Number inner, std::int64_t inner_stride,
                                                       std::int64_t outer_stride) {
  const Number outer = row / inner;
  return outer * outer_stride + (row - outer * inner) * inner_stride;
}

// Row r of a matrix. In a kernel with kWhole there are fewer than 2^31 rows.
template <bool kWhole>
__device__ __forceinline__ std::byte* row_at(const Rows& t, std::int64_t r) {
  using Number = std::conditional_t<kWhole, unsigned int, std::int64_t>;
  const auto row = static_cast<Number>(r);
  if (r < t.inner) return t.data + row * t.inner_stride;
  return t.data + row_on_two_levels(row, static_cast<Number>(t.inner), t.inner_stride, t.outer_stride);
}

// In a kernel with kWhole every row starts at a multiple of 16 bytes and has whole chunks only, so that a chunk is all
// there (first < n) or not at all.

// A thread's chunks of a row, chunk c from column first + c * step, as their loads left them: all are on their way
// before any of them is needed. Elements at or past n are +0.
template <Type kType, bool kWhole, int C>
struct RowChunks {
  static constexpr int kPieces = (kType == Type::f32 ? 2 : 1) + (kWhole ? 0 : 1);
  uint4 pieces[C][kPieces] = {};
  int shift = 0;  // bytes into the first piece at which the chunk starts

  __device__ __forceinline__ void load(Type type, const std::byte* row, int n, int first, int step) {
    const int size = bytes_each<kType>(type);
    shift = kWhole ? 0 : static_cast<int>(reinterpret_cast<unsigned long long>(row) & 15u);
    const std::byte* const p = row + std::int64_t{first} * size - shift;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int at = first + c * step, left = n - at < 2 * kChunk ? n - at : 2 * kChunk;
      [[maybe_unused]] const int low = at == 0 ? shift : 0, high = left > 0 ? left * size + shift : 0;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const auto* const from = p + c * step * size + 16 * i;
        const bool needed = left > 0 && (i < kPieces - 1 || kType != Type::f32 || size == 4);
        pieces[c][i] = make_uint4(0u, 0u, 0u, 0u);
        if (!needed) continue;
        if constexpr (kWhole) {
          pieces[c][i] = *reinterpret_cast<const uint4*>(from);
        } else {
          pieces[c][i] = load_piece(from, low - 16 * i, high - 16 * i);
        }
      }
    }
  }

  __device__ __forceinline__ Chunk<kType> chunk(Type type, int c) const {
    Chunk<kType> chunk;
    if constexpr (kWhole && kType != Type::f32) {
      chunk.raw = pieces[c][0];
    } else if constexpr (kWhole) {
      values_of_halves(type, pieces[c][0], pieces[c][1], chunk.v);
    } else {
      float v[kChunk];
      values_of_pieces(kType == Type::f32 ? type : kType, pieces[c][0], pieces[c][1], pieces[c][kPieces - 1], shift, v);
      chunk.set(v);
    }
    return chunk;
  }
};

template <Type kType, bool kWhole, int C>
__device__ __forceinline__ void load_chunks(Type type, const std::byte* row, int n, int first, int step,
                                            Chunk<kType> (&v)[C]) {
  RowChunks<kType, kWhole, C> row_chunks;
  row_chunks.load(type, row, n, first, step);
#pragma unroll
  for (int c = 0; c < C; ++c) v[c] = row_chunks.chunk(type, c);
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
