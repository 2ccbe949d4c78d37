// Rows that start at any multiple of an element's size, all the same sixteen bytes at a time.
//
// A piece is sixteen bytes at a multiple of sixteen. Lanes of a run, which are neighbours, have neighbouring chunks of
// a row; a chunk that starts `shift` bytes into a piece is the end of that piece and the beginning of the next. Loads
// shift two pieces (three of FP32) together; stores make pieces of a chunk and of the one before, its neighbour's. What
// of a piece is not the row's is neither read nor written, so that the first and the last piece of a row go element by
// element.
#pragma once

#include "cuda/device/convert.cuh"

namespace truenorm::cuda {

// Asked for by name: the compiler would rather find a word by its index in local memory.
__device__ __forceinline__ unsigned int select(bool wanted, unsigned int a, unsigned int b) {
  unsigned int v;
  asm("{ .reg .pred p; setp.ne.u32 p, %3, 0; selp.b32 %0, %1, %2, p; }"
      : "=r"(v)
      : "r"(a), "r"(b), "r"(static_cast<unsigned int>(wanted)));
  return v;
}

__device__ __forceinline__ uint4 select(bool wanted, const uint4& a, const uint4& b) {
  return make_uint4(select(wanted, a.x, b.x), select(wanted, a.y, b.y), select(wanted, a.z, b.z),
                    select(wanted, a.w, b.w));
}

// The kCount words that begin `bytes` bytes (at most 16; what is over a multiple of four does not count) into words.
template <int kCount, int kMost>
__device__ __forceinline__ void shift_words(unsigned int (&w)[kMost], int bytes) {
  static_assert(kMost >= kCount + 3);
#pragma unroll
  for (int by = 4; by >= 1; by /= 2) {
    const bool wanted = (bytes & (4 * by)) != 0;
#pragma unroll
    for (int i = 0; i < kMost - by; ++i) w[i] = select(wanted, w[i + by], w[i]);
  }
}

// ---- Loads.

// Bytes of a piece at `at` that are at least `low` and less than `high` bytes from there, and zeros.
__device__ __noinline__ inline uint4 load_part_of_piece(const std::byte* at, int low, int high) {
  unsigned int w[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (2 * i >= low && 2 * i < high) {
      w[i / 2] |= static_cast<unsigned int>(reinterpret_cast<const unsigned short*>(at)[i]) << (16 * (i % 2));
    }
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

__device__ __forceinline__ uint4 load_piece(const std::byte* at, int low, int high) {
  if (low <= 0 && high >= 16) return *reinterpret_cast<const uint4*>(at);
  return low < 16 && high > 0 ? load_part_of_piece(at, low, high) : make_uint4(0u, 0u, 0u, 0u);
}

// Eight elements from three pieces, the third of which only FP32 has, that begin `shift` bytes into the first.
__device__ __forceinline__ void values_of_pieces(Type type, const uint4& a, const uint4& b, const uint4& c, int shift,
                                                 float (&v)[kChunk]) {
  unsigned int w[12] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x, c.y, c.z, c.w};
  shift_words<8>(w, shift & 12);
  if (type == Type::f32) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = __uint_as_float(w[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], (shift & 2) * 8);
  widen8(type, make_uint4(w[0], w[1], w[2], w[3]), v);
}

// ---- Stores.

// Elements i of eight for which low <= i < high, of FP32 or of a type of 16 bits.
__device__ __noinline__ inline void store_part(Type type, std::byte* to, int low, int high, uint4 a, uint4 b) {
  const unsigned int w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (i < low || i >= high) continue;
    if (type == Type::f32) {
      reinterpret_cast<unsigned int*>(to)[i] = w[i];
    } else {
      reinterpret_cast<unsigned short*>(to)[i] = static_cast<unsigned short>(w[i / 2] >> (16 * (i % 2)));
    }
  }
}

__device__ __forceinline__ uint4 from_lane_before(const uint4& v, unsigned int lanes) {
  return make_uint4(__shfl_up_sync(lanes, v.x, 1), __shfl_up_sync(lanes, v.y, 1), __shfl_up_sync(lanes, v.z, 1),
                    __shfl_up_sync(lanes, v.w, 1));
}

// Stores eight values for each lane of a run, rounded to the type, to `to`, and none past the first `left` of them (0
// or fewer: none). All lanes of the run call, `lane` being the lane in its warp; a run has `lanes` lanes, a power of
// two.
__device__ __forceinline__ void store_run(Type type, std::byte* to, int left, int lane, int lanes,
                                          const float (&v)[kChunk]) {
  const unsigned int run = (0xffffffffu >> (32 - lanes)) << (lane & ~(lanes - 1));
  const int shift = static_cast<int>(reinterpret_cast<unsigned long long>(to) & 15u);
  const bool begins = (lane & (lanes - 1)) == 0, ends = (lane & (lanes - 1)) == lanes - 1;
  if (type == Type::f32) {
    const uint4 low = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                 __float_as_uint(v[3])),
                high = make_uint4(__float_as_uint(v[4]), __float_as_uint(v[5]), __float_as_uint(v[6]),
                                  __float_as_uint(v[7]));
    const uint4 before = from_lane_before(high, run);
    unsigned int w[12] = {before.x, before.y, before.z, before.w, low.x,  low.y,
                          low.z,    low.w,    high.x,   high.y,   high.z, high.w};
    shift_words<8>(w, 16 - shift);
    const uint4 first = make_uint4(w[0], w[1], w[2], w[3]), second = make_uint4(w[4], w[5], w[6], w[7]);
    const int moved = shift / 4, from = begins ? moved : 0, end = left + moved;
    if (from == 0 && end >= kChunk) {
      reinterpret_cast<uint4*>(to - shift)[0] = first;
      reinterpret_cast<uint4*>(to - shift)[1] = second;
    } else if (end > from) {
      store_part(type, to - shift, from, end, first, second);
    }
    if (ends && moved > 0 && left > kChunk - moved) store_part(type, to, kChunk - moved, left, low, high);
  } else {
    const uint4 own = narrow8(type, v), before = from_lane_before(own, run);
    unsigned int w[9] = {before.x, before.y, before.z, before.w, own.x, own.y, own.z, own.w, 0u};
    shift_words<5>(w, (16 - shift) & 28);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], (shift & 2) * 8);
    const uint4 piece = make_uint4(w[0], w[1], w[2], w[3]);
    const int moved = shift / 2, from = begins ? moved : 0, end = left + moved;
    if (from == 0 && end >= kChunk) {
      *reinterpret_cast<uint4*>(to - shift) = piece;
    } else if (end > from) {
      store_part(type, to - shift, from, end, piece, piece);
    }
    if (ends && moved > 0 && left > kChunk - moved) store_part(type, to, kChunk - moved, left, own, own);
  }
}

}  // namespace truenorm::cuda
