#include "cli/cuda_choice.hpp"

#include <algorithm>
#include <array>

#include "spec/call.hpp"

namespace truenorm::cli {
namespace {

using cuda::BackwardPlan;
using cuda::Device;
using cuda::RowPlan;
using spec::Rows;
using spec::Type;

// ---- As in src/cuda/launch and src/cuda/kernels, whose files need the CUDA toolkit: which plan a call gets, and what
// kernels need of shared memory. A test on a device compares the workspace with what the library asks for.

constexpr std::size_t kFloat = sizeof(float);
constexpr int kChunk = 8;          // device/chunk.cuh
constexpr int kWideThreads = 512;  // device/wide.cuh
constexpr std::int64_t kTile = kWideThreads * kChunk;
constexpr std::size_t kWideBlocks = 1024;
constexpr int kTreeLevels = 16;                           // kernels/backward_columns.cuh
constexpr std::int64_t kMostRows = INT32_MAX - 65536;     // launch/run.cpp
constexpr std::size_t kCounterBytes = 16, kAligned = 64;  // launch/run.cpp, and src/api/dispatch.cpp

Type common(Type a, const Rows& b) { return !b.present || b.type == a ? a : Type::f32; }

Type type_of_all(const spec::ForwardCall& call) {
  Type type = call.x.type;
  for (const Rows* t : {&call.residual, &call.y, &call.s}) type = common(type, *t);
  return call.residual.present && call.s_type != type ? Type::f32 : type;
}

Type type_of_all(const spec::BackwardCall& call) {
  Type type = call.dy.type;
  for (const Rows* t : {&call.ds, &call.dx, &call.s}) type = common(type, *t);
  return type;
}

bool aligned(const Rows& t, std::int64_t m) {
  const auto fits = [](std::int64_t bytes) { return bytes % 16 == 0; };
  return !t.present ||
         (fits(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(t.data))) && (m <= 1 || fits(t.inner_stride)));
}

template <class Call, class... Matrices>
bool whole(const Call& call, const Matrices&... matrices) {
  return call.n % 8 == 0 && call.m <= kMostRows && (... && aligned(matrices, call.m));
}
bool whole(const spec::ForwardCall& call) { return whole(call, call.x, call.residual, call.y, call.s); }
bool whole(const spec::BackwardCall& call) { return whole(call, call.dy, call.ds, call.s, call.dx); }

BackwardPlan plan_of(const spec::BackwardCall& call, const Device& device) {
  BackwardPlan plan;
  const int vectors = (call.dweight.present ? 1 : 0) + (call.dbias.present ? 1 : 0);
  const bool columns = vectors > 0;
  const bool in_place = columns && (call.dx.data == call.dy.data || call.dx.data == call.s.data);
  if (whole(call) && (in_place || cuda::worth_strips(call.m, call.n))) {
    plan.strips = cuda::plan_strips(call.m, call.n, call.ds.present, type_of_all(call) == Type::f32, device);
  }
  if (plan.strips.fits) {
    if (columns) {
      plan.scratch.data = static_cast<std::size_t>(vectors * plan.strips.groups * call.n) * kFloat;
      plan.scratch.counters = kCounterBytes;
    }
    return plan;
  }
  plan.split = cuda::plan_split(call.m, call.n, true, vectors, true, device);
  plan.ordered = in_place && plan.split.slabs > 0;
  if (plan.ordered) plan.scratch.counters = kCounterBytes;
  return plan;
}

RowPlan plan_of(const spec::ForwardCall& call, const Device& device) {
  const bool single = type_of_all(call) == Type::f32;
  return cuda::plan_forward(call.m, call.n, single, call.layer_norm, call.residual.present, device);
}

std::size_t row_bytes(const RowPlan& plan, int sums) {
  return plan.shape.warps == 1 ? 0 : kFloat * static_cast<std::size_t>(sums * plan.shape.warps * plan.chunks);
}

std::size_t forward_bytes(const RowPlan& plan, bool layer) {
  const std::size_t kept = std::size_t{kChunk} * static_cast<unsigned>(plan.chunks * plan.threads * (layer ? 2 : 1));
  return (plan.chunks > 2 ? kFloat * kept : 0) + 2 * row_bytes(plan, layer ? 3 : 1);
}

std::size_t columns_bytes(int threads, int chunks) {
  return kFloat * static_cast<std::size_t>((threads / 32 + kTreeLevels) * chunks * kChunk);
}

constexpr std::size_t wide_bytes(std::size_t sums) { return kFloat * sums * (kWideBlocks + 32); }

CudaLaunch launch_rows(const spec::ForwardCall& call, const RowPlan& plan) {
  CudaLaunch launch;
  launch.blocks = (call.m + plan.shape.rows_per_cta - 1) / plan.shape.rows_per_cta;
  launch.resident = true;
  launch.threads = plan.threads;
  launch.shared_bytes = forward_bytes(plan, call.layer_norm);
  return launch;
}

CudaLaunch launch_wide(const spec::ForwardCall& call, const Device& device, std::int64_t& cached) {
  const std::size_t chunk = kChunk * (type_of_all(call) == Type::f32 ? 4 : 2), tile = kWideThreads * chunk;
  const std::int64_t tiles = (call.n + kTile - 1) / kTile;
  cached = std::min(tiles, static_cast<std::int64_t>((device.shared_bytes - wide_bytes(2)) / tile));
  CudaLaunch launch;
  launch.blocks = call.m;
  launch.threads = kWideThreads;
  launch.shared_bytes = wide_bytes(2) + static_cast<std::size_t>(cached) * tile;
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
  const cuda::SplitPlan& split = plan.split;
  launch.blocks = split.slabs + split.row_blocks;
  launch.resident = plan.ordered;
  launch.threads = split.threads;
  launch.shared_bytes = std::max(split.slabs == 0 ? 0 : columns_bytes(split.threads, split.chunks),
                                 split.rows.wide ? wide_bytes(2) : row_bytes(split.rows, 2));
  return launch;
}

// ---- The call that is planned.

// Memory that is never touched: only addresses matter. Odd by one element where matrices are not aligned.
struct Places {
  static constexpr int kMost = 4;
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

spec::ForwardCall forward_call(const PlannedCall& call, Places& places) {
  spec::ForwardCall out;
  out.m = call.shape.m;
  out.n = call.shape.n;
  out.layer_norm = call.op.op == TN_LAYER_NORM;
  out.x = places.matrix(call, call.dtype);
  out.y = places.matrix(call, call.out_dtype);
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
    choice.kept = static_cast<tn_dtype>(type_of_all(call));
    choice.whole = whole(call);
    choice.forward = plan_of(call, device);
    const bool wide = choice.forward->wide;
    choice.kernel = wide ? CudaKernel::forward_wide : CudaKernel::forward;
    choice.launch = wide ? launch_wide(call, device, choice.cached_tiles) : launch_rows(call, *choice.forward);
    return choice;
  }
  const spec::BackwardCall call = backward_call(planned, places);
  choice.kept = static_cast<tn_dtype>(type_of_all(call));
  choice.whole = whole(call);
  choice.backward = plan_of(call, device);
  const BackwardPlan& plan = *choice.backward;
  choice.kernel = plan.strips.fits       ? CudaKernel::backward_strips
                  : plan.split.rows.wide ? CudaKernel::backward_split_wide
                                         : CudaKernel::backward_split;
  choice.launch = launch_backward(plan);
  if (plan.scratch.data != 0) choice.workspace_bytes = plan.scratch.data + kAligned - 1;
  if (plan.scratch.counters != 0) choice.counter_bytes = plan.scratch.counters + kAligned - 1;
  return choice;
}

}  // namespace truenorm::cli
