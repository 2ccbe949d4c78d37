// A forward on ordinary tensors, past the dispatcher: the fast path of eager mode.
#pragma once

#include "call.hpp"

namespace truenorm::binding {

// Whether eager_forward may serve these inputs now; the operators serve all others.
bool eager_serves(const ForwardInputs& in);

// Runs, and records what autograd needs. `norm` and `in` as forward() takes them. Without the interpreter's lock.
ForwardOutputs eager_forward(const Norm& norm, const ForwardInputs& in);

}  // namespace truenorm::binding
