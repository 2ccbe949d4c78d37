// How the specification's functions are declared: usable from host code, constant expressions and CUDA kernels alike.
//
// They are always inlined on the host: the CPU backend compiles them once per instruction set, and an out-of-line copy
// made for AVX-512 must never be the one that the linker keeps for everybody.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TN_FN __host__ __device__ __forceinline__ constexpr
#else
#define TN_FN __attribute__((always_inline)) inline constexpr
#endif
