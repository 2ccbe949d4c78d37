// Backward launches of one matrix type; each type is compiled apart, and so are rows that start anywhere.
#pragma once

#include "cuda/kernels/backward_split.cuh"
#include "cuda/kernels/backward_strips.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

template <Type kType, bool kLayer, bool kWhole>
const char* launch_split(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* counters) {
  const SplitPlan& split = plan.split;
  const SplitShape shape{.rows = split.rows.shape,
                         .row_blocks = split.row_blocks,
                         .slabs = split.slabs,
                         .slabs_each = split.slabs_each,
                         .chunks = split.chunks,
                         .cached = static_cast<int>(split.cached),
                         .early = where.programmatic,
                         .counter = plan.ordered ? static_cast<unsigned*>(counters) : nullptr};
  const auto with = [&](auto kernel) {
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = split.slabs + split.row_blocks,
                   .threads = split.threads,
                   .shared_bytes = split_shared_bytes(split),
                   .residence = plan.ordered ? Residence::kSure : Residence::kAny},
                  where, call, shape);
  };
  if (split.rows.wide) return with(&backward_split_wide_kernel<kType, kLayer, kWhole>);
  switch (split.rows.chunks) {
    case 1: return with(&backward_split_kernel<kType, 1, kLayer, kWhole>);
    case 2: return with(&backward_split_kernel<kType, 2, kLayer, kWhole>);
    case 3: return with(&backward_split_kernel<kType, 3, kLayer, kWhole>);
    case 4: return with(&backward_split_kernel<kType, 4, kLayer, kWhole>);
    default: return with(&backward_split_kernel<kType, 5, kLayer, kWhole>);
  }
}

inline StripsArgs strips_args(const spec::BackwardCall& call, const BackwardPlan& plan, void* data, void* counters) {
  const StripsPlan& strips = plan.strips;
  const auto matrix = [&](const Rows& t) {
    return StripsArgs::Matrix{t.data, t.inner_stride, t.inner_stride * spec::strips(call.n)};
  };
  const auto in_order = [&](const Rows& t) { return !t.present || t.inner >= call.m; };
  const Rows& first = call.dx.present ? call.dx : call.dresidual;
  const bool columns = plan.scratch.counters != 0;
  StripsArgs args{};
  args.dy = matrix(call.dy);
  args.s = matrix(call.s);
  args.ds = matrix(call.ds);
  args.dx = matrix(first);
  args.rstd = call.rstd;
  args.mean = call.mean;
  args.m = static_cast<int>(call.m);
  args.n = static_cast<int>(call.n);
  args.pitch = static_cast<int>(strips.pitch);
  args.strips = static_cast<int>(spec::strips(call.n));
  args.groups = static_cast<int>(strips.groups);
  args.log_lanes = strips.log_lanes;
  args.teams = strips.teams;
  args.team_warps = strips.team_warps;
  args.columns = static_cast<int>(strips.columns);
  args.dx_type = first.type;
  args.in_order = in_order(call.dy) && in_order(call.s) && in_order(call.ds) && in_order(first);
  args.two_outputs = call.dx.present && call.dresidual.present;
  args.plain = call.dweight.present && (call.layer_norm ? call.dbias.present : !call.round_xhat);
  args.partials = columns ? static_cast<float*>(data) : nullptr;
  args.counter = columns ? static_cast<unsigned*>(counters) : nullptr;
  args.call = call;
  return args;
}

template <Type kType, bool kLayer, bool kWhole>
const char* launch_strips(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                          void* counters) {
  const StripsPlan& strips = plan.strips;
  StripsArgs args = strips_args(call, plan, data, counters);
  args.early = where.programmatic;
  const auto with = [&](auto kernel) {
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = strips.groups * strips.cluster(),
                   .threads = strips.threads(),
                   .shared_bytes = strips.shared_bytes,
                   .cluster = strips.cluster(),
                   .residence = args.partials != nullptr ? Residence::kSure : Residence::kAny},
                  where, args);
  };
  const auto kernel = [&]<int C, Team kTeam>() {
    return call.ds.present ? with(&backward_strips_kernel<kType, C, kLayer, true, kTeam, kWhole>)
                           : with(&backward_strips_kernel<kType, C, kLayer, false, kTeam, kWhole>);
  };
  switch (strips.team) {
    case Team::kCluster:
      return strips.chunks == 1   ? kernel.template operator()<1, Team::kCluster>()
             : strips.chunks == 2 ? kernel.template operator()<2, Team::kCluster>()
                                  : kernel.template operator()<3, Team::kCluster>();
    case Team::kBlock: return kernel.template operator()<1, Team::kBlock>();
    case Team::kHalf: return kernel.template operator()<1, Team::kHalf>();
    case Team::kWarp: break;
  }
  switch (strips.chunks) {
    case 1: return kernel.template operator()<1, Team::kWarp>();
    case 2: return kernel.template operator()<2, Team::kWarp>();
    case 3: return kernel.template operator()<3, Team::kWarp>();
    default: return kernel.template operator()<4, Team::kWarp>();
  }
}

template <Type kType, bool kLayer, bool kWhole>
const char* launch_backward_op(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                               void* counters) {
  return plan.strips.fits ? launch_strips<kType, kLayer, kWhole>(call, where, plan, data, counters)
                          : launch_split<kType, kLayer, kWhole>(call, where, plan, counters);
}

template <Type kType, bool kWhole>
const char* launch_backward(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                            void* counters) {
  return call.layer_norm ? launch_backward_op<kType, true, kWhole>(call, where, plan, data, counters)
                         : launch_backward_op<kType, false, kWhole>(call, where, plan, data, counters);
}

}  // namespace truenorm::cuda
