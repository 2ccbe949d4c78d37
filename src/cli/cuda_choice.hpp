// Which of the CUDA backend's kernels serves a call, and how it is launched: the backend's own plans (src/cuda/tuning),
// asked without a device.
#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cli/bench_plan.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cli {

// A call as `truenorm bench` makes it: with a weight, LayerNorm's also with a bias, and dx as the only matrix that a
// backward gives.
struct PlannedCall {
  BenchOp op;
  Direction direction;
  BenchShape shape;
  tn_dtype dtype;           // of x, s and dy
  tn_dtype residual_dtype;  // of the residual stream: residual, s and ds
  tn_dtype out_dtype;       // of y or dx
  bool in_place = false;    // dx is written over dy
  bool aligned = true;      // matrices and the forward's vectors start at a multiple of 16 bytes
};

enum class CudaKernel { forward, forward_wide, backward_strips, backward_split, backward_split_wide };

struct CudaLaunch {
  std::int64_t blocks = 0;  // thread blocks
  bool resident = false;    // fewer of them, where not all are on the device at once: these do the work of all
  int threads = 0;          // of a thread block
  int cluster = 1;
  std::size_t shared_bytes = 0;
};

struct CudaChoice {
  CudaKernel kernel = CudaKernel::forward;
  tn_dtype kept = TN_F32;  // the matrix type that the kernel is compiled for: FP32 stands for every other call
  bool whole = false;      // whole chunks of 16 aligned bytes are loaded and stored
  CudaLaunch launch;
  std::optional<cuda::ForwardPlan> forward;
  std::int64_t cached_tiles = 0;  // forward_wide, backward_split_wide: of a row, in shared memory
  std::optional<cuda::BackwardPlan> backward;
  std::size_t workspace_bytes = 0, counter_bytes = 0;  // as tn_backward_workspace says
};

CudaChoice choose_kernel(const PlannedCall& call, const cuda::Device& device);

}  // namespace truenorm::cli
