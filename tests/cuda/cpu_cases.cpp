// The CPU's cases (tests/cases_*_test.cpp) are compiled into the device's tests too: `check` has their calls run here.
#include "cuda/device.hpp"
#include "support/call.hpp"

namespace truenorm::test {
namespace {

// Marks the test as skipped, which still runs, on the CPU.
void say_skipped() { TN_NEEDS_CUDA(); }

template <class Args>
bool run_here(Arena& arena, const Args& args) {
  if (tn_device_count(TN_CUDA) == 0) {
    say_skipped();
    return false;
  }
  run_on_device(arena, args);
  return true;
}

const bool kSet = [] {
  elsewhere = {run_here<tn_forward_args>, run_here<tn_backward_args>};
  return true;
}();

}  // namespace
}  // namespace truenorm::test
