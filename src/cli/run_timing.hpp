#pragma once

#include "cli/run_call.hpp"
#include "cli/run_report.hpp"

namespace truenorm::cli {

// Repeats the call, at least 5 times and for half a second, and a copy of as many bytes by as many threads. On a CUDA
// device both are the device's time alone, each with a cold L2 cache. The call has run before.
RunTiming time_call(RunCall& call, const Executor& executor);

}  // namespace truenorm::cli
