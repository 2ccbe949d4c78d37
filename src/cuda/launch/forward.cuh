// Forward launches of one matrix type; each type is compiled apart.
#pragma once

#include "cuda/kernels/forward.cuh"
#include "cuda/kernels/forward_wide.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

template <Type kType, bool kLayer, bool kWhole>
const char* launch_forward_wide(const spec::ForwardCall& call, const Where& where, const Device& device) {
  constexpr bool kSingle = kType == Type::f32;
  const auto cached = static_cast<int>(wide_cached_tiles(call.n, kSingle, device));
  return launch({.kernel = reinterpret_cast<const void*>(&forward_wide_kernel<kType, kLayer, kWhole>),
                 .blocks = call.m,
                 .threads = kWideThreads,
                 .shared_bytes = wide_shared_bytes(2, cached, 1, kSingle),
                 .residence = kWhole ? Residence::kWanted : Residence::kAny},
                where, call, cached, where.programmatic);
}

template <Type kType, bool kLayer, bool kAdd, bool kWhole>
const char* launch_forward_rows(const spec::ForwardCall& call, const Where& where, const RowPlan& plan) {
  const auto with = [&](auto kernel) {
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = (call.m + plan.shape.rows_per_cta - 1) / plan.shape.rows_per_cta,
                   .threads = plan.threads,
                   .shared_bytes = forward_shared_bytes(plan, kLayer),
                   .residence = plan.once ? Residence::kAny : Residence::kWanted},
                  where, call, plan.shape, where.programmatic);
  };
  // Few rows of few chunks have a kernel of their own, if they are whole.
  constexpr bool kOnce = kWhole;
  switch (plan.chunks) {
    case 1:
      return plan.once ? with(&forward_kernel<kType, 1, kLayer, kAdd, kWhole, kOnce>)
                       : with(&forward_kernel<kType, 1, kLayer, kAdd, kWhole, false>);
    case 2:
      return plan.once ? with(&forward_kernel<kType, 2, kLayer, kAdd, kWhole, kOnce>)
                       : with(&forward_kernel<kType, 2, kLayer, kAdd, kWhole, false>);
    case 3: return with(&forward_kernel<kType, 3, kLayer, kAdd, kWhole, false>);
    default: return with(&forward_kernel<kType, 4, kLayer, kAdd, kWhole, false>);
  }
}

template <Type kType, bool kLayer, bool kAdd>
const char* launch_forward_op(const spec::ForwardCall& call, const Where& where, const Device& device) {
  const RowPlan plan = plan_of(call, device);
  const auto with = [&]<bool kWhole>() {
    return plan.wide ? launch_forward_wide<kType, kLayer, kWhole>(call, where, device)
                     : launch_forward_rows<kType, kLayer, kAdd, kWhole>(call, where, plan);
  };
  return whole_chunks(call) ? with.template operator()<true>() : with.template operator()<false>();
}

template <Type kType>
const char* launch_forward(const spec::ForwardCall& call, const Where& where, const Device& device) {
  if (call.residual.present) {
    return call.layer_norm ? launch_forward_op<kType, true, true>(call, where, device)
                           : launch_forward_op<kType, false, true>(call, where, device);
  }
  return call.layer_norm ? launch_forward_op<kType, true, false>(call, where, device)
                         : launch_forward_op<kType, false, false>(call, where, device);
}

extern template const char* launch_forward<Type::f32>(const spec::ForwardCall&, const Where&, const Device&);
extern template const char* launch_forward<Type::f16>(const spec::ForwardCall&, const Where&, const Device&);
extern template const char* launch_forward<Type::bf16>(const spec::ForwardCall&, const Where&, const Device&);

}  // namespace truenorm::cuda
