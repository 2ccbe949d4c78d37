// Forward launches of one matrix type; each type is compiled apart.
#pragma once

#include "cuda/kernels/forward.cuh"
#include "cuda/kernels/forward_wide.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

template <Type kType, bool kLayer>
const char* launch_forward_wide(const spec::ForwardCall& call, const Where& where, const Device& device) {
  const auto tiles = static_cast<std::size_t>((call.n + kTile - 1) / kTile);
  const std::size_t tile_bytes = kWideThreads * sizeof(Chunk<kType>), sums = wide_shared_bytes(2);
  const int cached = static_cast<int>(std::min(tiles, (device.shared_bytes - sums) / tile_bytes));
  const std::size_t bytes = sums + static_cast<std::size_t>(cached) * tile_bytes;
  return launch({reinterpret_cast<const void*>(&forward_wide_kernel<kType, kLayer>), call.m, kWideThreads, bytes}, where,
                call, cached);
}

template <Type kType, Type kVec, bool kLayer, bool kWhole>
const char* launch_forward_rows(const spec::ForwardCall& call, const Where& where, const RowPlan& plan) {
  const auto with = [&](auto kernel) {
    const std::int64_t blocks = (call.m + plan.shape.rows_per_cta - 1) / plan.shape.rows_per_cta;
    return launch({reinterpret_cast<const void*>(kernel), blocks, plan.threads, row_shared_bytes(plan, 3)}, where, call,
                  plan.shape);
  };
  switch (plan.chunks) {
    case 1: return with(&forward_kernel<kType, kVec, 1, kLayer, kWhole>);
    case 2: return with(&forward_kernel<kType, kVec, 2, kLayer, kWhole>);
    case 4: return with(&forward_kernel<kType, kVec, 4, kLayer, kWhole>);
    default:
      if constexpr (kWhole) {
        if (plan.chunks == 8) return with(&forward_kernel<kType, kVec, 8, kLayer, kWhole>);
        if constexpr (kType != Type::f32 && !kLayer) return with(&forward_kernel<kType, kVec, 16, kLayer, kWhole>);
      }
      return "no kernel for this plan";
  }
}

template <Type kType, bool kLayer>
const char* launch_forward_op(const spec::ForwardCall& call, const Where& where, const Device& device) {
  const bool whole = whole_chunks(call);
  const RowPlan plan = plan_forward(call.m, call.n, kType == Type::f32, kLayer, whole, device);
  if (plan.wide) return launch_forward_wide<kType, kLayer>(call, where, device);
  if (!whole) return launch_forward_rows<kType, Type::f32, kLayer, false>(call, where, plan);
  if (vectors(call) == Type::f32) return launch_forward_rows<kType, Type::f32, kLayer, true>(call, where, plan);
  return launch_forward_rows<kType, kType, kLayer, true>(call, where, plan);
}

template <Type kType>
const char* launch_forward(const spec::ForwardCall& call, const Where& where, const Device& device) {
  return call.layer_norm ? launch_forward_op<kType, true>(call, where, device)
                         : launch_forward_op<kType, false>(call, where, device);
}

extern template const char* launch_forward<Type::f32>(const spec::ForwardCall&, const Where&, const Device&);
extern template const char* launch_forward<Type::f16>(const spec::ForwardCall&, const Where&, const Device&);
extern template const char* launch_forward<Type::bf16>(const spec::ForwardCall&, const Where&, const Device&);

}  // namespace truenorm::cuda
