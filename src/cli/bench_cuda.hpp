// `truenorm bench` on a CUDA device.
#pragma once

#include <truenorm/truenorm.h>

#include "cli/bench_case.hpp"
#include "cli/bench_group.hpp"
#include "cli/bench_plan.hpp"

namespace truenorm::cli {

// As run_group, in the time of the device that `exec` names. A sample is one replay of a CUDA graph that holds many
// calls, each on the next set of `memory`, so that launches cost the host nothing and inputs come from memory. Beside
// it, single calls are timed with a cold L2 cache.
BenchGroup run_cuda_group(const BenchPlan& plan, const tn_exec& exec, const BenchMemory& memory);

// Calls in a graph, where one passes over `call_bytes`: as many as pass over `rotate_bytes`, within bounds.
int64_t graph_calls(size_t call_bytes, size_t rotate_bytes);

}  // namespace truenorm::cli
