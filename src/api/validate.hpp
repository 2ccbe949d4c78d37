// Checks a call's arguments and turns them into a spec call. Nothing is read or written through any tensor here.
#pragma once

#include "api/error.hpp"
#include "spec/call.hpp"

namespace truenorm::api {

// A place where the call may not run, or a device that does not exist. `exec` NULL means the CPU.
tn_status check_exec(const tn_exec* exec, tn_exec& out, tn_error* error) noexcept;

// With `need_data`, pointers are checked as well: present, aligned to their element, not overlapping where forbidden.
tn_status check_forward(const tn_forward_args* args, bool need_data, spec::ForwardCall& call, tn_error* error) noexcept;
tn_status check_backward(const tn_backward_args* args, bool need_data, spec::BackwardCall& call,
                         tn_error* error) noexcept;

}  // namespace truenorm::api
