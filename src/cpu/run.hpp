// Runs a call on the CPU: the split into tasks, and the scratch that the split needs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/plan.hpp"

struct tn_threads;

namespace truenorm::cpu {

// How many of m rows of n elements make a task for a pool of `workers`.
std::int64_t rows_per_task(std::int64_t m, std::int64_t n, int workers);

// Stores past the caches pay once a call writes this much: by the time it is read, it would have left them anyway.
bool worth_streaming(std::int64_t m, std::int64_t n, const Rows& a, const Rows& b);

void run_forward(const spec::ForwardCall& call, const Kernels& kernels, tn_threads* threads);

inline constexpr std::size_t kTooMuchScratch = SIZE_MAX;

// Bytes of scratch for a pool of `workers`: 0 where no weight gradient is asked for, kTooMuchScratch where no address
// space holds it.
std::size_t backward_scratch(const spec::BackwardCall& call, int workers);

// `scratch` is aligned to a float and as large as backward_scratch says for the pool.
void run_backward(const spec::BackwardCall& call, const Kernels& kernels, tn_threads* threads, void* scratch);

}  // namespace truenorm::cpu
