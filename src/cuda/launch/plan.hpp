// Which kernel serves a backward call, and the scratch that it needs.
#pragma once

#include "cuda/run.hpp"
#include "cuda/tuning/split.hpp"

namespace truenorm::cuda {

struct BackwardPlan {
  SplitPlan split;
  bool ordered = false;  // dx is written over an input that the weight gradients read: these come first
  Scratch scratch;
};

BackwardPlan plan_backward(const spec::BackwardCall& call, const Device& device);

// The type of all matrices of a call; FP32 where they differ.
spec::Type matrices(const spec::ForwardCall& call);
spec::Type matrices(const spec::BackwardCall& call);

}  // namespace truenorm::cuda
