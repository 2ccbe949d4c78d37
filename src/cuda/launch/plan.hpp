// Which kernel serves a call, and the scratch that it needs; nothing here needs a device, or the CUDA toolkit.
#pragma once

#include "cuda/run.hpp"
#include "cuda/tuning/forward.hpp"
#include "cuda/tuning/split.hpp"
#include "cuda/tuning/strips.hpp"

namespace truenorm::cuda {

struct BackwardPlan {
  StripsPlan strips;  // where it fits the call, else:
  SplitPlan split;
  bool ordered = false;  // dx is written over an input that the weight gradients read: these come first
  Scratch scratch;
};

ForwardPlan plan_of(const spec::ForwardCall& call, const Device& device);
BackwardPlan plan_of(const spec::BackwardCall& call, const Device& device);

// Scratch for a call of these shapes, strides and types wherever its operands lie: for the plan that needs most.
Scratch most_scratch(const spec::BackwardCall& call, const Device& device);

// The type that a call's kernel keeps matrices as: that of all of them; FP32 where they differ, or where rows start
// anywhere, but for the forward's that lie beside vectors at multiples of 16 bytes.
spec::Type matrices(const spec::ForwardCall& call);
spec::Type matrices(const spec::BackwardCall& call);
// The same of a forward whose plan is wide: FP32 wherever chunks are not whole.
spec::Type matrices_of_wide(const spec::ForwardCall& call);

// Whether the kernels of whole chunks serve the call: every row and vector starts at a multiple of 16 bytes and has a
// multiple of eight elements, and there are fewer than 2^31 rows.
bool whole_chunks(const spec::ForwardCall& call);
bool whole_chunks(const spec::BackwardCall& call);

}  // namespace truenorm::cuda
