// A build without CUDA. The API refuses a CUDA device before it comes here.
#include "cuda/run.hpp"

namespace truenorm::cuda {

namespace {
constexpr const char* kAbsent = "this build has no CUDA backend";
}

bool compiled() { return false; }
int device_count() { return 0; }
const char* run_forward(const spec::ForwardCall&, const Where&) { return kAbsent; }
const char* backward_scratch(const spec::BackwardCall&, int, bool, Scratch&) { return kAbsent; }
const char* run_backward(const spec::BackwardCall&, const Where&, void*, void*) { return kAbsent; }

}  // namespace truenorm::cuda
