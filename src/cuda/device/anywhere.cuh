// Rows that start at any multiple of their elements' size.
//
// A run is what neighbouring lanes of a warp have of a row: a chunk each. Its bytes are copied to shared memory in
// words of four, neighbours by neighbouring lanes, so that nothing needs to be aligned further; a row of a type of 16
// bits that starts in the middle of a word lies two bytes further on there too. Stores go by shared memory as well, so
// that neighbouring lanes write neighbouring elements.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/chunk.cuh"

namespace truenorm::cuda {

// What a run takes in shared memory: eight FP32 values for each lane, and a word more.
__device__ __forceinline__ int run_bytes(int lanes) { return lanes * 32 + 16; }

// 2 where a row starts in the middle of a word, else 0.
__device__ __forceinline__ int half_word(const void* row) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(row) & 2u);
}

// Bytes of a word that are there, of `left` from its first on.
__device__ __forceinline__ int part_of_word(int left) { return left < 0 ? 0 : left > 4 ? 4 : left; }

// Copies a run that starts at `from`, of which `left` bytes are there (0 or fewer: none), to `to`; zeros for the rest.
// Of the word in which it starts all is read, which is all in that word's allocation: those start at more than a word.
__device__ __forceinline__ void copy_run(unsigned int to, const std::byte* from, int left, Type type, int in_run,
                                         int lanes) {
  const int half = half_word(from), turns = type == Type::f32 ? 8 : 4, step = 4 * lanes;
  from += 4 * in_run - half;
  to += 4 * in_run;
  left = left > 0 ? left + half : 0;
  if (left >= turns * step) {
#pragma unroll
    for (int turn = 0; turn < 8; ++turn) {
      if (turn < turns) copy_word_async(to + turn * step, from + turn * step);
    }
  } else {
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      copy_part_of_word_async(to + turn * step, from + turn * step, part_of_word(left - 4 * in_run - turn * step));
    }
  }
  if (half != 0 && in_run == 0) {
    copy_part_of_word_async(to + turns * step, from + turns * step, part_of_word(left - turns * step));
  }
}

// A lane's chunk of a run that lies at `run` and starts `half` bytes further on.
__device__ __forceinline__ void values_of_run(Type type, const std::byte* run, int half, int in_run,
                                              float (&v)[kChunk]) {
  const auto* const own = reinterpret_cast<const uint4*>(run) + in_run * (type == Type::f32 ? 2 : 1);
  const uint4 a = own[0];
  if (type == Type::f32) return values_of_halves(type, a, own[1], v);
  const unsigned int next = reinterpret_cast<const unsigned int*>(own + 1)[0];
  const int bits = 8 * half;
  widen8(type,
         make_uint4(__funnelshift_r(a.x, a.y, bits), __funnelshift_r(a.y, a.z, bits), __funnelshift_r(a.z, a.w, bits),
                    __funnelshift_r(a.w, next, bits)),
         v);
}

// Stores a run of which `left` elements are there (0 or fewer: none), rounded to the type, to `to`, by way of shared
// memory at `run`. All threads of the warp call.
__device__ __forceinline__ void store_run(Type type, std::byte* to, int left, std::byte* run, int in_run, int lanes,
                                          const float (&v)[kChunk]) {
  __syncwarp();  // all lanes have read what was there
  store_whole<Type::f32>(type, run + in_run * kChunk * (type == Type::f32 ? 4 : 2), v);
  __syncwarp();
  const auto* const words = reinterpret_cast<const unsigned int*>(run);
  const auto* const elements = reinterpret_cast<const unsigned short*>(run);
  const bool all = left >= lanes * kChunk;
  if (type == Type::f32) {
#pragma unroll
    for (int turn = 0; turn < kChunk; ++turn) {
      const int i = turn * lanes + in_run;
      if (all || i < left) reinterpret_cast<unsigned int*>(to)[i] = words[i];
    }
  } else if (half_word(to) == 0) {
#pragma unroll
    for (int turn = 0; turn < kChunk / 2; ++turn) {
      const int i = turn * lanes + in_run;
      if (all || 2 * i + 1 < left) {
        reinterpret_cast<unsigned int*>(to)[i] = words[i];
      } else if (2 * i < left) {
        reinterpret_cast<unsigned short*>(to)[2 * i] = elements[2 * i];
      }
    }
  } else {
#pragma unroll
    for (int turn = 0; turn < kChunk; ++turn) {
      const int i = turn * lanes + in_run;
      if (all || i < left) reinterpret_cast<unsigned short*>(to)[i] = elements[i];
    }
  }
}

}  // namespace truenorm::cuda
