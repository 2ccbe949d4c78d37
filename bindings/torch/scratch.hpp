// The workspace of one call, from PyTorch's own allocators.
#pragma once

#include <ATen/core/Tensor.h>
#include <truenorm/truenorm.h>

namespace truenorm::binding {

// Memory for what tn_*_workspace asked for. It may go back to its allocator as soon as the call has returned: the
// caching allocator hands it out again only to work of the same stream.
struct Scratch {
  at::Tensor memory;
  tn_workspace workspace{};
};

// `needed` has the sizes. `stream` is the call's cudaStream_t, NULL for the CPU.
Scratch make_scratch(const tn_workspace& needed, const at::Device& device, void* stream);

}  // namespace truenorm::binding
