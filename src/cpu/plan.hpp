// A call as the CPU kernels of every instruction set take it.
#pragma once

#include <cstdint>

#include "spec/call.hpp"

namespace truenorm::cpu {

using spec::Rows;
using spec::Type;
using spec::Vec;

struct ForwardPlan : spec::ForwardCall {
  bool stream = false;  // outputs are too large to be worth caching
};

struct BackwardPlan : spec::BackwardCall {
  bool stream = false;

  // The weight gradients' scratch, FP32. A group is `group_strips` neighbouring strips, a power of two; one worker sums
  // a group's strips in its own accumulators and leaves their tree's sum in the group's row of `partials`.
  std::int64_t strips = 0;  // those that have rows, at most spec::strips(n)
  std::int64_t group_strips = 0;
  std::int64_t groups = 0;
  std::int64_t columns = 0;       // floats per accumulator row: n padded so that whole vectors may be written
  float* accumulators = nullptr;  // [slot][dweight?, dbias?][group_strips][columns]
  float* partials = nullptr;      // [dweight?, dbias?][groups][columns]
};

// One instruction set's kernels. Row ranges are half open.
struct Kernels {
  void (*forward)(const ForwardPlan&, std::int64_t row_begin, std::int64_t row_end);
  void (*backward_rows)(const BackwardPlan&, std::int64_t row_begin, std::int64_t row_end);
  void (*backward_group)(const BackwardPlan&, std::int64_t group, int slot);
  // Sums the groups of columns [begin, end), multiples of kBlock or the end, and stores dweight and dbias.
  void (*combine)(const BackwardPlan&, std::int64_t column_begin, std::int64_t column_end);
};

}  // namespace truenorm::cpu
