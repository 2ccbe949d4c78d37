// PyTorch's own normalisation operators, served by ours.
#pragma once

#include <c10/core/DeviceType.h>

namespace truenorm::binding {

// From now on, until route_aten(device, false), aten's operators on this kind of device (CPU or CUDA) come to ours
// where ours serve the call, and to the kernels that were there before where not. Twice is as once.
void route_aten(c10::DeviceType device, bool on);
bool aten_routed(c10::DeviceType device);

}  // namespace truenorm::binding
