#include "cuda/run.hpp"

#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

using spec::Type;

// Defined in the files of each type, and of rows that start anywhere.
template <Type kType, bool kWhole>
const char* launch_forward(const spec::ForwardCall& call, const Where& where, const Device& device);
template <Type kType, bool kWhole>
const char* launch_backward(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                            void* counters);

const char* run_forward(const spec::ForwardCall& call, const Where& where) {
  if (call.m == 0) return nullptr;
  const char* error = nullptr;
  const Device* const device = device_of(where.device, error);
  if (device == nullptr) return error;
  const Type type = matrices(call);
  if (whole_chunks(call)) {
    switch (type) {
      case Type::f32: return launch_forward<Type::f32, true>(call, where, *device);
      case Type::f16: return launch_forward<Type::f16, true>(call, where, *device);
      default: return launch_forward<Type::bf16, true>(call, where, *device);
    }
  }
  switch (type) {
    case Type::f32: return launch_forward<Type::f32, false>(call, where, *device);
    case Type::f16: return launch_forward<Type::f16, false>(call, where, *device);
    default: return launch_forward<Type::bf16, false>(call, where, *device);
  }
}

const char* backward_scratch(const spec::BackwardCall& call, int index, bool anywhere, Scratch& scratch) {
  const char* error = nullptr;
  const Device* const device = device_of(index, error);
  if (device == nullptr) return error;
  scratch = anywhere ? most_scratch(call, *device) : plan_of(call, *device).scratch;
  return nullptr;
}

const char* run_backward(const spec::BackwardCall& call, const Where& where, void* data, void* counters) {
  const char* error = nullptr;
  const Device* const device = device_of(where.device, error);
  if (device == nullptr) return error;
  const BackwardPlan plan = plan_of(call, *device);
  if (!plan.strips.fits && plan.split.row_blocks + plan.split.slabs == 0) return nullptr;
  if (!whole_chunks(call)) return launch_backward<Type::f32, false>(call, where, plan, data, counters);
  switch (matrices(call)) {
    case Type::f32: return launch_backward<Type::f32, true>(call, where, plan, data, counters);
    case Type::f16: return launch_backward<Type::f16, true>(call, where, plan, data, counters);
    default: return launch_backward<Type::bf16, true>(call, where, plan, data, counters);
  }
}

}  // namespace truenorm::cuda
