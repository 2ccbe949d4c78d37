// Backward launches of one matrix type; each type is compiled apart, and so are rows that start anywhere.
#pragma once

#include <algorithm>
#include <bit>
#include <climits>

#include "cuda/kernels/backward_split.cuh"
#include "cuda/kernels/backward_strips.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

inline SplitArgs split_args(const spec::BackwardCall& call, const SplitPlan& split, Type type, bool early) {
  const std::int64_t strips = spec::strips(call.n);
  const auto rows = [&](const Rows& t) {
    return call.m <= kMostRows ? rows_at(t, call.m) : RowsAt{.type = t.type, .present = t.present};
  };
  SplitArgs args{};
  args.row_blocks = static_cast<unsigned>(split.row_blocks);
  args.slabs = static_cast<unsigned>(split.slabs);
  args.slabs_of_weight = call.dweight.present ? static_cast<unsigned>(split.slabs_each) : 0;
  args.n = static_cast<int>(call.n);
  args.m = call.m;
  args.dy = rows(call.dy);
  args.s = rows(call.s);
  args.rstd = call.rstd;
  args.mean = call.mean;
  args.log_lanes = split.rows.shape.log_lanes;
  args.warps = split.rows.shape.warps;
  args.rows_each = split.rows.shape.rows_per_cta;
  args.log_chunks = std::bit_width(static_cast<unsigned>(split.chunks)) - 1;
  args.strips = static_cast<int>(strips);
  args.used = call.dy.present ? static_cast<int>(std::min(call.m, strips)) : 0;
  args.weight = call.weight;
  args.offset = spec::effective_offset(call.offset);
  args.plain_weight = call.weight.present && call.weight.type == type && args.offset == 0.0f;
  args.early = early;
  args.round_xhat = call.round_xhat;
  args.one_gradient = call.dx.present && call.dx.type == type && !call.ds.present && !call.dresidual.present;
  args.dx = rows(call.dx);
  args.ds = rows(call.ds);
  args.dresidual = rows(call.dresidual);
  args.dweight = call.dweight;
  args.dbias = call.dbias;
  args.xhat_type = call.xhat_type;
  args.cached = static_cast<int>(split.cached);
  args.call = call;
  return args;
}

template <Type kType, bool kLayer, bool kWhole>
const char* launch_split(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* counters) {
  const SplitPlan& split = plan.split;
  SplitArgs args = split_args(call, split, kType, where.programmatic);
  args.counter = plan.ordered ? static_cast<unsigned*>(counters) : nullptr;
  const auto with = [&](auto kernel) {
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = split.slabs + split.row_blocks,
                   .threads = split.threads,
                   .shared_bytes = split_shared_bytes(split),
                   .residence = args.counter != nullptr ? Residence::kSure : Residence::kAny},
                  where, args);
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
  args.log_strips = std::bit_width(static_cast<unsigned>(args.strips)) - 1;
  args.weight = call.weight;
  args.offset = spec::effective_offset(call.offset);
  args.groups = static_cast<int>(strips.groups);
  args.log_lanes = strips.log_lanes;
  args.teams = strips.teams;
  args.team_warps = strips.team_warps;
  args.columns = static_cast<int>(strips.columns);
  args.large = strips.large_copies;
  // The first two tiles come sooner if each thread asks for what it needs itself.
  args.tiles_by_threads = args.large ? 2 : INT_MAX;
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
    if constexpr (has_few_warps(kTeam, C)) {
      if (strips.few_warps) {
        return call.ds.present ? with(&backward_strips_kernel<kType, C, kLayer, true, kTeam, kWhole, true>)
                               : with(&backward_strips_kernel<kType, C, kLayer, false, kTeam, kWhole, true>);
      }
    }
    return call.ds.present ? with(&backward_strips_kernel<kType, C, kLayer, true, kTeam, kWhole, false>)
                           : with(&backward_strips_kernel<kType, C, kLayer, false, kTeam, kWhole, false>);
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
