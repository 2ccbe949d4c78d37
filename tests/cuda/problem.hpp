// A forward and its backward with all operands and outputs, and their bits.
#pragma once

#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {

// Of dense tensors of one type; statistics and weight gradients in FP32. The backward takes what the forward saved.
struct Problem {
  Problem(tn_op op, Size size, tn_dtype type, std::uint64_t seed);

  // The CPU's results become what is expected.
  void solve();
  // Values that no result has: in all outputs, or where the backward is to run alone, in its own.
  void spoil_results() const;
  void spoil_gradients() const { spoil_outputs(backward_call); }
  void expect_results() const;
  // Both on the device, where nothing else may be written.
  void check_on_device();

  Arena arena;
  tn_forward_args forward_call;
  tn_backward_args backward_call;
  ForwardBits forward_bits;
  BackwardBits backward_bits;
};

}  // namespace truenorm::test
