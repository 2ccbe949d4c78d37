// What plans need to know of a device.
#pragma once

#include <cstddef>

namespace truenorm::cuda {

struct Device {
  int multiprocessors = 0;
  int major = 0, minor = 0;      // compute capability
  std::size_t shared_bytes = 0;  // that one thread block may have
};

}  // namespace truenorm::cuda
