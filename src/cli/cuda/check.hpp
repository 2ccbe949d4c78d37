#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace truenorm::cli {

// `what` is what was being done, as in "copying to the device".
inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA, ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace truenorm::cli
