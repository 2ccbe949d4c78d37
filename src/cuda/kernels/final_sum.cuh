// The last step of the weight gradients: the tree over all partial sums, each thread block taking columns of its own.
#pragma once

#include "cuda/device/column_trees.cuh"
#include "spec/call.hpp"

namespace truenorm::cuda {

// Partial sums of dweight, dbias or both, in this order: [which][count][pitch] floats, the first n of them columns. The
// pitch is a multiple of eight.
struct Partials {
  const float* sums;
  int count;
  int n, pitch;
};

// out[column] = the tree over at most kCount (64, 128 or 256) partial sums of that column, rounded, for this thread
// block's share of the columns of both gradients. Each 256 threads of the thread block take 32 columns at a time: a
// warp has eight lanes of four neighbouring columns, by four rows of lanes with kEach neighbouring partial sums each.
//
// What can be known before the partial sums are there is found out by the constructor.
template <int kCount>
class FinalSums {
  static constexpr int kColumns = 32, kWarps = 8, kRows = 4, kPitch = kColumns + 4;
  static constexpr int kEach = kCount / (kWarps * kRows);

 public:
  static constexpr std::size_t kSharedBytes = 2 * kWarps * kPitch * sizeof(float);

  __device__ __forceinline__ FinalSums(const spec::Vec& dweight, const spec::Vec& dbias, const Partials& of)
      : weight(dweight), bias(dbias), n(of.n), pitch(of.pitch), count(of.count) {
    const int all = (dweight.present && dbias.present ? 2 : 1) * pitch;
    const int mine = ((all / 4 + gridDim.x - 1) / gridDim.x) * 4;  // columns of this thread block
    const int begin = static_cast<int>(blockIdx.x) * mine;
    end = begin + mine < all ? begin + mine : all;
    halves = blockDim.x >= 512 ? 2 : 1;
    half = threadIdx.x >> 8;
    first = begin + half * kColumns;
    rounds = end <= begin ? 0 : (end - begin + halves * kColumns - 1) / (halves * kColumns);
    row = (((threadIdx.x >> 5) & (kWarps - 1)) * kRows + ((threadIdx.x & 31) >> 3)) * kEach;
    from = of.sums + std::int64_t{row} * pitch;
  }

  // `shared`: kSharedBytes.
  __device__ __forceinline__ void run(float* shared) {
    const int lane = threadIdx.x & 31, in_half = threadIdx.x & 255;
    shared += half * kWarps * kPitch;
    float4 v[kEach];
    const auto load = [&](int begin) {
      const int column = begin + (lane & 7) * 4;
      const float* const at = from + (column < pitch ? column : column + std::int64_t{count - 1} * pitch);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        v[i] = column < end && row + i < count ? __ldcg(reinterpret_cast<const float4*>(at + std::int64_t{i} * pitch))
                                               : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    };
    if (rounds > 0 && half < halves) load(first);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round, first += halves * kColumns) {
      if (half < halves) {
        float s[4] = {tree<kEach>([&](int i) { return v[i].x; }), tree<kEach>([&](int i) { return v[i].y; }),
                      tree<kEach>([&](int i) { return v[i].z; }), tree<kEach>([&](int i) { return v[i].w; })};
        if (round + 1 < rounds) load(first + halves * kColumns);  // under way while these are summed
        tree_over_lanes<4, 8>(s, shared + (in_half >> 5) * kPitch);
      }
      __syncthreads();
      if (half < halves) {  // neighbouring lanes have a column's sums of the warps
        const int mine = in_half >> 3, out = first + mine;
        float sum = shared[(lane & 7) * kPitch + mine];
#pragma unroll
        for (int mask = 1; mask < kWarps; mask *= 2) sum = Scalar::add(sum, from_lane_xor(sum, mask));
        if ((lane & 7) == 0 && out < end) {
          const bool of_weight = weight.present && out < pitch;
          const int column = of_weight || !weight.present ? out : out - pitch;
          const Type type = of_weight ? weight.type : bias.type;
          if (column < n) store1(type, of_weight ? weight.data : bias.data, column, Scalar::add(sum, 0.0f));
        }
      }
      if (round + 1 < rounds) __syncthreads();
    }
  }

 private:
  const spec::Vec weight, bias;
  const int n, pitch, count;
  int halves, half, first, end, rounds, row;
  const float* from;
};

}  // namespace truenorm::cuda
