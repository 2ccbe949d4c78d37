// The pool of CPU threads that all calls of this process share.
#pragma once

#include <truenorm/truenorm.h>

#include <memory>

namespace truenorm::binding {

// A pool of as many threads as PyTorch would use here (at::get_num_threads()); empty where that is one.
std::shared_ptr<tn_threads> thread_pool();

}  // namespace truenorm::binding
