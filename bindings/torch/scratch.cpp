#include "scratch.hpp"

#include "tensors.hpp"
#ifdef TRUENORM_TORCH_WITH_CUDA
#include "counters.hpp"
#endif

namespace truenorm::binding {

Scratch make_scratch(const tn_workspace& needed, const at::Device& device, void* stream) {
  Scratch scratch;
  if (needed.size > 0) {
    scratch.memory = new_dense({static_cast<std::int64_t>(needed.size)}, at::kByte, device);
    scratch.workspace.data = scratch.memory.mutable_data_ptr();
    scratch.workspace.size = needed.size;
  }
#ifdef TRUENORM_TORCH_WITH_CUDA
  if (needed.counters_size > 0) {
    scratch.workspace.counters = zeroed_counters(needed.counters_size, device, stream);
    scratch.workspace.counters_size = needed.counters_size;
  }
#else
  (void)stream;
#endif
  return scratch;
}

}  // namespace truenorm::binding
