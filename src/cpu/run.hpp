// Runs a plan on the CPU: the split into tasks, and the scratch that the split needs.
#pragma once

#include <cstddef>

#include "cpu/plan.hpp"

struct tn_threads;

namespace truenorm::cpu {

// Rows a task, for rows of n elements.
std::int64_t rows_per_task(std::int64_t n);

void run_forward(const ForwardPlan& plan, const Kernels& kernels, tn_threads* threads);

// Decides the groups of strips for a pool of `workers`; returns the bytes of scratch, 0 where no weight gradient is
// asked for. The split changes no bit of the result.
std::size_t plan_scratch(BackwardPlan& plan, int workers);

// `scratch` is aligned to a float and as large as plan_scratch said.
void run_backward(BackwardPlan plan, const Kernels& kernels, tn_threads* threads, void* scratch);

}  // namespace truenorm::cpu
