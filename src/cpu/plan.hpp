// What a call comes down to once its arguments have been checked: plain data that the kernels of every instruction set
// share. No function here is compiled per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/types.hpp"

namespace truenorm::cpu {

using spec::Type;

// The rows of a matrix, strides in bytes. Row r lies at (r / inner) * outer_stride + (r % inner) * inner_stride.
struct Rows {
  std::byte* data = nullptr;
  Type type = Type::f32;
  bool present = false;
  std::int64_t inner = 0;
  std::int64_t inner_stride = 0;
  std::int64_t outer_stride = 0;
};

// A contiguous vector.
struct Vec {
  std::byte* data = nullptr;
  Type type = Type::f32;
  bool present = false;
};

struct ForwardPlan {
  std::int64_t m = 0;
  std::int64_t n = 0;
  bool layer_norm = false;
  bool round_xhat = false;  // llama rounding, of a 16-bit x
  bool stream = false;      // outputs are too large to be worth caching
  Type xhat_type = Type::f32;
  Type s_type = Type::f32;
  float eps = 0;
  float offset = 0;
  Rows x, residual, y, s;  // s is present where residual_out is asked for
  Vec weight, bias;
  float* mean = nullptr;
  float* rstd = nullptr;
};

struct BackwardPlan {
  std::int64_t m = 0;
  std::int64_t n = 0;
  bool layer_norm = false;
  bool round_xhat = false;
  bool stream = false;
  Type xhat_type = Type::f32;
  float offset = 0;
  Rows dy, ds, s, dx, dresidual;
  Vec weight;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  Vec dweight, dbias;

  // The weight gradients' scratch, FP32. A group is `group_strips` neighbouring strips, a power of two; one worker sums
  // a group's strips in its own accumulators and leaves their tree's sum in the group's row of `partials`.
  std::int64_t strips = 0;  // those that have rows, at most spec::strips(n)
  std::int64_t group_strips = 0;
  std::int64_t groups = 0;
  std::int64_t columns = 0;       // floats per accumulator row: n padded so that whole vectors may be written
  float* accumulators = nullptr;  // [worker][dweight?, dbias?][group_strips][columns]
  float* partials = nullptr;      // [dweight?, dbias?][groups][columns]
};

// One instruction set's kernels. Row ranges are half open.
struct Kernels {
  void (*forward)(const ForwardPlan&, std::int64_t row_begin, std::int64_t row_end);
  void (*backward_rows)(const BackwardPlan&, std::int64_t row_begin, std::int64_t row_end);
  void (*backward_group)(const BackwardPlan&, std::int64_t group, int worker);
  // Sums the groups of columns [begin, end), multiples of kBlock or the end, and stores dweight and dbias.
  void (*combine)(const BackwardPlan&, std::int64_t column_begin, std::int64_t column_end);
};

}  // namespace truenorm::cpu
