#include "cli/cuda_choice.hpp"

#include <array>

#include "spec/call.hpp"

namespace truenorm::cli {
namespace {

using cuda::BackwardPlan;
using cuda::Device;
using cuda::ForwardPlan;
using spec::Rows;
using spec::Type;

constexpr std::size_t kAligned = 64;  // src/api/dispatch.cpp

CudaLaunch launch_rows(const spec::ForwardCall& call, const ForwardPlan& plan) {
  CudaLaunch launch;
  const std::int64_t each = std::int64_t{plan.rows} * plan.turns;
  launch.blocks = (call.m + each - 1) / each;
  launch.threads = plan.threads;
  launch.shared_bytes = plan.shared_bytes;
  return launch;
}

CudaLaunch launch_wide(const spec::ForwardCall& call, const Device& device, std::int64_t& cached) {
  const bool single = cuda::matrices_of_wide(call) == Type::f32;
  cached = cuda::wide_cached_tiles(call.n, single, device);
  CudaLaunch launch;
  launch.blocks = call.m;
  launch.resident = true;
  launch.threads = cuda::kWideThreads;
  launch.shared_bytes = cuda::wide_shared_bytes(2, cached, 1, single);
  return launch;
}

CudaLaunch launch_backward(const BackwardPlan& plan) {
  CudaLaunch launch;
  if (plan.strips.fits) {
    launch.blocks = plan.strips.groups * plan.strips.cluster();
    launch.resident = plan.scratch.counters != 0;
    launch.threads = plan.strips.threads();
    launch.cluster = plan.strips.cluster();
    launch.shared_bytes = plan.strips.shared_bytes;
    return launch;
  }
  launch.blocks = plan.split.slabs + plan.split.row_blocks;
  launch.resident = plan.ordered;
  launch.threads = plan.split.threads;
  launch.shared_bytes = cuda::split_shared_bytes(plan.split);
  return launch;
}

// ---- The call that is planned.

// Memory that is never touched: only addresses matter. Odd by one element where they are not aligned.
struct Places {
  static constexpr int kMost = 6;
  alignas(16) std::array<std::byte, std::size_t{16} * kMost> memory{};
  int used = 0;

  Rows matrix(const PlannedCall& call, tn_dtype dtype) {
    const std::size_t size = tn_dtype_size(dtype);
    Rows rows;
    rows.data = memory.data() + 16 * used++ + (call.aligned ? 0 : size);
    rows.type = static_cast<Type>(dtype);
    rows.present = true;
    rows.inner = call.shape.m;
    rows.inner_stride = call.shape.n * static_cast<std::int64_t>(size);
    return rows;
  }
};

spec::Vec vector(const Rows& place) { return {place.data, place.type, true}; }

spec::ForwardCall forward_call(const PlannedCall& call, Places& places) {
  spec::ForwardCall out;
  out.m = call.shape.m;
  out.n = call.shape.n;
  out.layer_norm = call.op.op == TN_LAYER_NORM;
  out.x = places.matrix(call, call.dtype);
  out.y = places.matrix(call, call.out_dtype);
  out.weight = vector(places.matrix(call, call.dtype));
  if (out.layer_norm) out.bias = vector(places.matrix(call, call.dtype));
  if (call.op.add) out.residual = places.matrix(call, call.residual_dtype);
  if (call.op.add) out.s = places.matrix(call, call.residual_dtype);
  out.s_type = out.s.present ? out.s.type : out.x.type;
  return out;
}

spec::BackwardCall backward_call(const PlannedCall& call, Places& places) {
  spec::BackwardCall out;
  out.m = call.shape.m;
  out.n = call.shape.n;
  out.layer_norm = call.op.op == TN_LAYER_NORM;
  out.dy = places.matrix(call, call.dtype);
  out.s = places.matrix(call, call.op.add ? call.residual_dtype : call.dtype);
  if (call.op.add) out.ds = places.matrix(call, call.residual_dtype);
  out.dx = call.in_place ? out.dy : places.matrix(call, call.out_dtype);
  out.dweight.present = call.direction == Direction::backward;
  out.dbias.present = out.dweight.present && out.layer_norm;
  return out;
}

}  // namespace

CudaChoice choose_kernel(const PlannedCall& planned, const Device& device) {
  CudaChoice choice;
  Places places;
  if (planned.direction == Direction::forward) {
    const spec::ForwardCall call = forward_call(planned, places);
    choice.whole = cuda::whole_chunks(call);
    choice.forward = cuda::plan_of(call, device);
    const bool wide = choice.forward->wide;
    choice.kept = static_cast<tn_dtype>(wide ? cuda::matrices_of_wide(call) : cuda::matrices(call));
    choice.kernel = wide ? CudaKernel::forward_wide : CudaKernel::forward;
    choice.launch = wide ? launch_wide(call, device, choice.cached_tiles) : launch_rows(call, *choice.forward);
    return choice;
  }
  const spec::BackwardCall call = backward_call(planned, places);
  choice.kept = static_cast<tn_dtype>(cuda::matrices(call));
  choice.whole = cuda::whole_chunks(call);
  choice.backward = cuda::plan_of(call, device);
  const BackwardPlan& plan = *choice.backward;
  choice.kernel = plan.strips.fits       ? CudaKernel::backward_strips
                  : plan.split.rows.wide ? CudaKernel::backward_split_wide
                                         : CudaKernel::backward_split;
  choice.launch = launch_backward(plan);
  choice.cached_tiles = plan.split.cached;
  const cuda::Scratch scratch = cuda::most_scratch(call, device);
  if (scratch.data != 0) choice.workspace_bytes = scratch.data + kAligned - 1;
  if (scratch.counters != 0) choice.counter_bytes = scratch.counters + kAligned - 1;
  return choice;
}

}  // namespace truenorm::cli
