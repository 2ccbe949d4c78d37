// The counters that the CUDA backward needs zeroed, and leaves zero.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>

namespace truenorm::binding {

// `bytes` of zeros on the current device, which is `device`, for one launch on `stream`. Launches of one stream follow
// each other and share theirs. A launch that is being captured has its own for ever: its graph may run at any time, on
// any stream, and zeroing them in the graph would cost a node for each.
void* zeroed_counters(std::size_t bytes, const at::Device& device, void* stream);

}  // namespace truenorm::binding
