// Trees down the rows: neighbours are lanes, then warps.
#pragma once

#include "cuda/device/reduce.cuh"

namespace truenorm::cuda {

// A warp's lanes are 32 / kSide rows of kSide (a power of two) lanes side by side, each with V neighbouring columns.
// The tree over the rows; lanes swap halves of what they hold. The sums, kSide * V of them, are left in `out`.
template <int V, int kSide>
__device__ __forceinline__ void tree_over_lanes(float (&s)[V], float* out) {
  const int lane = threadIdx.x & 31, column = lane & (kSide - 1), row = lane / kSide;
  constexpr int kSteps = kSide == 32 ? 0 : kSide == 16 ? 1 : kSide == 8 ? 2 : kSide == 4 ? 3 : kSide == 2 ? 4 : 5;
  int held = V, base = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int mask = kSide << step;
    if ((V >> step) > 1) {
      const bool odd = (row >> step) & 1;
#pragma unroll
      for (int j = 0; j < (V >> (step + 1)); ++j) {
        const float keep = odd ? s[2 * j + 1] : s[2 * j], give = odd ? s[2 * j] : s[2 * j + 1];
        s[j] = Scalar::add(keep, from_lane_xor(give, mask));
      }
      base |= odd ? 1 << step : 0;
      held = V >> (step + 1);
    } else {
      s[0] = Scalar::add(s[0], from_lane_xor(s[0], mask));
    }
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    if (j < held) out[column * V + base + j * (V / held)] = s[j];
  }
}

// The neighbour-first tree over `count` (a power of two, at most kColumnWarps) values `stride` apart.
inline constexpr int kColumnWarps = 16;
__device__ __forceinline__ float tree_of_column(const float* values, int count, int stride) {
  return tree<kColumnWarps>([&](int i) { return i < count ? values[i * stride] : 0.0f; });
}

}  // namespace truenorm::cuda
