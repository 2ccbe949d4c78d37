// The definition, evaluated in the plainest way: scalar loops over src/spec, one row at a time. What the library must
// give, bit for bit. Shares no code with src/cpu.
#pragma once

#include "support/tensor.hpp"

namespace truenorm::test {

// Empty where not asked for.
struct ForwardBits {
  Bits y, residual_out, mean, rstd;
};
struct BackwardBits {
  Bits dx, dresidual, dweight, dbias;
};

// Valid arguments only; inputs are read, outputs only looked at for their types and presence.
ForwardBits model_forward(const tn_forward_args& args);
BackwardBits model_backward(const tn_backward_args& args);

}  // namespace truenorm::test
