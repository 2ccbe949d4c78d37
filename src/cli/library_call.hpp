// One call of the library on tensors that lie in the host's memory, wherever it runs.
#pragma once

#include <truenorm/truenorm.h>

#include "cli/memory.hpp"
#include "cli/memory_image.hpp"

namespace truenorm::cli {

// Args is tn_forward_args or tn_backward_args. Owns the scratch and, on a CUDA device, copies there of all the tensors'
// memory; that of the outputs travels both ways, so that what the call does not write stays as it was. Can be run again
// and again. `exec` and the tensors must stay; throws as require_ok does.
template <class Args>
class LibraryCall {
 public:
  LibraryCall(const tn_exec& exec, const Args& args);

  // When it returns, the outputs are in the host's memory.
  void run();
  // The call alone, on `stream`, on what the last run left on the device.
  void enqueue(void* stream);

 private:
  tn_exec exec_;
  Args args_;  // with the addresses that the library gets
  MemoryImage image_;
  DeviceMemory there_;
  Scratch scratch_;
};

extern template class LibraryCall<tn_forward_args>;
extern template class LibraryCall<tn_backward_args>;

}  // namespace truenorm::cli
