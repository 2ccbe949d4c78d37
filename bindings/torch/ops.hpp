// The operators truenorm::*, through PyTorch's dispatcher: for tracing, transforms and tensor subclasses.
#pragma once

#include "call.hpp"

namespace truenorm::binding {

// backward() by way of truenorm::rms_norm_backward or layer_norm_backward.
std::array<at::Tensor, kGradients> backward_operator(const Norm& norm, const BackwardInputs& in,
                                                     const WantedMask& wanted);

// "llama" is TN_ROUND_LLAMA; "gemma" and "none" are TN_ROUND_ONCE; an error for anything else.
tn_rounding rounding_of(std::string_view casting_mode);

}  // namespace truenorm::binding
