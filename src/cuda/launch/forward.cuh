// Forward launches of one matrix type; each type is compiled apart, and so are rows that start anywhere.
#pragma once

#include "cuda/kernels/forward.cuh"
#include "cuda/kernels/forward_wide.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

template <Type kType, bool kLayer, bool kWhole>
const char* launch_forward_wide(const spec::ForwardCall& call, const Where& where, const Device& device) {
  constexpr Type kKept = kWhole ? kType : Type::f32;
  constexpr bool kSingle = kKept == Type::f32;
  const auto cached = static_cast<int>(wide_cached_tiles(call.n, kSingle, device));
  return launch({.kernel = reinterpret_cast<const void*>(&forward_wide_kernel<kKept, kLayer, kWhole>),
                 .blocks = call.m,
                 .threads = kWideThreads,
                 .shared_bytes = wide_shared_bytes(2, cached, 1, kSingle),
                 .residence = Residence::kWanted},
                where, call, cached, where.programmatic);
}

inline ForwardArgs forward_args(const spec::ForwardCall& call, const ForwardPlan& plan, Type type, bool early) {
  const auto usual = [&](const auto& t) { return t.present && t.type == type; };
  const bool plain = usual(call.weight) && (call.layer_norm ? usual(call.bias) : !call.bias.present);
  const bool one_type = usual(call.x) && (!call.y.present || usual(call.y));
  return {.m = static_cast<unsigned int>(call.m),
          .n = static_cast<int>(call.n),
          .log_lanes = plan.log_lanes,
          .warps = plan.warps,
          .rows = plan.rows,
          .turns = plan.turns,
          .eps = call.eps,
          .offset = spec::effective_offset(call.offset),
          .cached = plan.cached,
          .round_xhat = call.round_xhat,
          .plain = plain && one_type && call.y.present && !(call.round_xhat && type == Type::f32),
          .early = early,
          .xhat_type = call.xhat_type,
          .s_type = call.s_type,
          .x = rows_at(call.x, call.m),
          .weight = call.weight,
          .bias = call.bias,
          .y = rows_at(call.y, call.m),
          .mean = call.mean,
          .rstd = call.rstd,
          .residual = rows_at(call.residual, call.m),
          .s = rows_at(call.s, call.m)};
}

template <Type kType, bool kLayer, bool kAdd, bool kWhole>
const char* launch_forward_rows(const spec::ForwardCall& call, const Where& where, const ForwardPlan& plan) {
  const ForwardArgs args = forward_args(call, plan, kType, where.programmatic);
  const auto with = [&](auto kernel) {
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = (call.m + plan.rows * plan.turns - 1) / (plan.rows * plan.turns),
                   .threads = plan.threads,
                   .shared_bytes = plan.shared_bytes},
                  where, args);
  };
  constexpr bool kSingle = kType == Type::f32;
  if constexpr (has_forward_narrow(kSingle)) {
    const auto narrow = [&]<int C>() {
      if constexpr (!kWhole) {
        return with(&forward_kernel<kType, C, kLayer, kAdd, kWhole, ForwardForm::kNarrow>);
      } else {
        return args.plain ? with(&forward_kernel<kType, C, kLayer, kAdd, kWhole, ForwardForm::kNarrowPlain>)
                          : with(&forward_kernel<kType, C, kLayer, kAdd, kWhole, ForwardForm::kNarrow>);
      }
    };
    if (plan.narrow) return plan.chunks == 1 ? narrow.template operator()<1>() : narrow.template operator()<2>();
  }
  if constexpr (kWhole) {
    constexpr auto kDirect = ForwardForm::kDirect;
    if constexpr (kLayer) {
      if (plan.direct && plan.chunks == 3) return with(&forward_kernel<kType, 3, kLayer, kAdd, kWhole, kDirect>);
    }
    if (plan.direct) return with(&forward_kernel<kType, 4, kLayer, kAdd, kWhole, kDirect>);
  }
  constexpr auto kForm = ForwardForm::kGeneral;
  switch (plan.chunks) {
    case 1:
      if constexpr (!has_forward_narrow(kSingle)) {
        return with(&forward_kernel<kType, 1, kLayer, kAdd, kWhole, kForm>);
      }
      [[fallthrough]];
    case 2: return with(&forward_kernel<kType, 2, kLayer, kAdd, kWhole, kForm>);
    case 3: return with(&forward_kernel<kType, 3, kLayer, kAdd, kWhole, kForm>);
    default: return with(&forward_kernel<kType, 4, kLayer, kAdd, kWhole, kForm>);
  }
}

template <Type kType, bool kLayer, bool kAdd, bool kWhole>
const char* launch_forward_op(const spec::ForwardCall& call, const Where& where, const Device& device) {
  const ForwardPlan plan = plan_of(call, device);
  return plan.wide ? launch_forward_wide<kType, kLayer, kWhole>(call, where, device)
                   : launch_forward_rows<kType, kLayer, kAdd, kWhole>(call, where, plan);
}

template <Type kType, bool kWhole>
const char* launch_forward(const spec::ForwardCall& call, const Where& where, const Device& device) {
  if (call.residual.present) {
    return call.layer_norm ? launch_forward_op<kType, true, true, kWhole>(call, where, device)
                           : launch_forward_op<kType, false, true, kWhole>(call, where, device);
  }
  return call.layer_norm ? launch_forward_op<kType, true, false, kWhole>(call, where, device)
                         : launch_forward_op<kType, false, false, kWhole>(call, where, device);
}

}  // namespace truenorm::cuda
