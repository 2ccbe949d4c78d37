// Backward launches of one matrix type; each type is compiled apart.
#pragma once

#include "cuda/kernels/backward_split.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

template <Type kType, bool kLayer>
const char* launch_split(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* counters) {
  const SplitPlan& split = plan.split;
  const SplitShape shape{split.rows.shape, split.row_blocks,  split.slabs,
                         split.chunks,     split.slabs_first, plan.ordered ? static_cast<unsigned*>(counters) : nullptr};
  const auto with = [&](auto kernel, std::size_t row_bytes) {
    const std::size_t bytes =
        std::max(split.slabs == 0 ? 0 : columns_shared_bytes(split.threads, split.chunks), row_bytes);
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = split.slabs + split.row_blocks,
                   .threads = split.threads,
                   .shared_bytes = bytes,
                   .cooperative = plan.ordered},
                  where, call, shape);
  };
  if (split.rows.wide) return with(&backward_split_wide_kernel<kType, kLayer>, wide_shared_bytes(2));
  switch (split.rows.chunks) {
    case 1: return with(&backward_split_kernel<kType, 1, kLayer>, row_shared_bytes(split.rows, 2));
    case 2: return with(&backward_split_kernel<kType, 2, kLayer>, row_shared_bytes(split.rows, 2));
    default: return with(&backward_split_kernel<kType, 4, kLayer>, row_shared_bytes(split.rows, 2));
  }
}

template <Type kType>
const char* launch_backward(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void*,
                            void* counters) {
  return call.layer_norm ? launch_split<kType, true>(call, where, plan, counters)
                         : launch_split<kType, false>(call, where, plan, counters);
}

extern template const char* launch_backward<Type::f32>(const spec::BackwardCall&, const Where&, const BackwardPlan&,
                                                       void*, void*);
extern template const char* launch_backward<Type::f16>(const spec::BackwardCall&, const Where&, const BackwardPlan&,
                                                       void*, void*);
extern template const char* launch_backward<Type::bf16>(const spec::BackwardCall&, const Where&, const BackwardPlan&,
                                                        void*, void*);

}  // namespace truenorm::cuda
