// Backward launches of one matrix type; each type is compiled apart.
#pragma once

#include "cuda/kernels/backward_split.cuh"
#include "cuda/kernels/backward_strips.cuh"
#include "cuda/launch/launch.hpp"
#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {

template <Type kType, bool kLayer, bool kWhole>
const char* launch_split(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* counters) {
  const SplitPlan& split = plan.split;
  const SplitShape shape{split.rows.shape,  split.row_blocks,
                         split.slabs,       split.chunks,
                         split.slabs_first, plan.ordered ? static_cast<unsigned*>(counters) : nullptr};
  const auto with = [&](auto kernel, std::size_t row_bytes) {
    const std::size_t bytes =
        std::max(split.slabs == 0 ? 0 : columns_shared_bytes(split.threads, split.chunks), row_bytes);
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = split.slabs + split.row_blocks,
                   .threads = split.threads,
                   .shared_bytes = bytes,
                   .residence = plan.ordered ? Residence::kSure : Residence::kAny},
                  where, call, shape);
  };
  if (split.rows.wide) return with(&backward_split_wide_kernel<kType, kLayer>, wide_shared_bytes(2));
  switch (split.rows.chunks) {
    case 1: return with(&backward_split_kernel<kType, 1, kLayer, kWhole>, row_shared_bytes(split.rows, 2));
    case 2: return with(&backward_split_kernel<kType, 2, kLayer, kWhole>, row_shared_bytes(split.rows, 2));
    case 3: return with(&backward_split_kernel<kType, 3, kLayer, kWhole>, row_shared_bytes(split.rows, 2));
    case 4: return with(&backward_split_kernel<kType, 4, kLayer, kWhole>, row_shared_bytes(split.rows, 2));
    default: return with(&backward_split_kernel<kType, 5, kLayer, kWhole>, row_shared_bytes(split.rows, 2));
  }
}

template <Type kType, bool kLayer>
const char* launch_strips(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                          void* counters) {
  const StripsPlan& strips = plan.strips;
  const bool columns = plan.scratch.counters != 0;
  const StripsShape shape{strips.log_lanes,
                          strips.strips,
                          strips.stages,
                          static_cast<int>(strips.columns),
                          static_cast<int>(strips.groups),
                          columns ? static_cast<float*>(data) : nullptr,
                          columns ? static_cast<unsigned*>(counters) : nullptr};
  const auto with = [&](auto kernel) {
    return launch({.kernel = reinterpret_cast<const void*>(kernel),
                   .blocks = strips.groups * strips.cluster,
                   .threads = strips.threads(),
                   .shared_bytes = strips_shared_bytes(strips),
                   .cluster = strips.cluster,
                   .residence = columns ? Residence::kSure : Residence::kAny},
                  where, call, shape);
  };
  if (call.n <= spec::kNarrow) {
    constexpr int kRows = kType == Type::f32 ? 1 : 2;
    switch (strips.chunks) {
      case 1: return with(&backward_strips_kernel<kType, 1, kRows, kLayer, Spread::kNarrow>);
      case 2: return with(&backward_strips_kernel<kType, 2, kRows, kLayer, Spread::kNarrow>);
      case 3: return with(&backward_strips_kernel<kType, 3, kRows, kLayer, Spread::kNarrow>);
      default: return with(&backward_strips_kernel<kType, 4, kRows, kLayer, Spread::kNarrow>);
    }
  }
  if (strips.cluster == 1) {
    switch (strips.rows_per_tile) {
      case 1: return with(&backward_strips_kernel<kType, 1, 1, kLayer, Spread::kBlock>);
      case 2: return with(&backward_strips_kernel<kType, 1, 2, kLayer, Spread::kBlock>);
      default: return with(&backward_strips_kernel<kType, 1, 4, kLayer, Spread::kBlock>);
    }
  }
  switch (strips.chunks) {
    case 1:
      return strips.rows_per_tile == 1 ? with(&backward_strips_kernel<kType, 1, 1, kLayer, Spread::kCluster>)
                                       : with(&backward_strips_kernel<kType, 1, 2, kLayer, Spread::kCluster>);
    case 2: return with(&backward_strips_kernel<kType, 2, 1, kLayer, Spread::kCluster>);
    default: return with(&backward_strips_kernel<kType, 3, 1, kLayer, Spread::kCluster>);
  }
}

template <Type kType, bool kLayer>
const char* launch_backward_op(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                               void* counters) {
  if (plan.strips.fits) return launch_strips<kType, kLayer>(call, where, plan, data, counters);
  return whole_chunks(call) ? launch_split<kType, kLayer, true>(call, where, plan, counters)
                            : launch_split<kType, kLayer, false>(call, where, plan, counters);
}

template <Type kType>
const char* launch_backward(const spec::BackwardCall& call, const Where& where, const BackwardPlan& plan, void* data,
                            void* counters) {
  return call.layer_norm ? launch_backward_op<kType, true>(call, where, plan, data, counters)
                         : launch_backward_op<kType, false>(call, where, plan, data, counters);
}

extern template const char* launch_backward<Type::f32>(const spec::BackwardCall&, const Where&, const BackwardPlan&,
                                                       void*, void*);
extern template const char* launch_backward<Type::f16>(const spec::BackwardCall&, const Where&, const BackwardPlan&,
                                                       void*, void*);
extern template const char* launch_backward<Type::bf16>(const spec::BackwardCall&, const Where&, const BackwardPlan&,
                                                        void*, void*);

}  // namespace truenorm::cuda
