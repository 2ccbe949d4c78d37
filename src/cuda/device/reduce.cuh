// Row sums in the published order (spec/reduce.hpp), by lanes, warps and shared memory.
//
// A block of 256 elements is 32 lanes of one chunk each. Every sum ends with the addition of +0, so that it matters
// nowhere whether what is missing was added as +0 or not at all.
#pragma once

#include "cuda/device/chunk.cuh"
#include "spec/reduce.hpp"

namespace truenorm::cuda {

using spec::Scalar;

inline constexpr unsigned int kAllLanes = 0xffffffffu;

__device__ __forceinline__ float from_lane_xor(float v, int mask) { return __shfl_xor_sync(kAllLanes, v, mask); }

// threadIdx.x as a value that stays in a register: the compiler would rather ask for it again wherever it is used, and
// the answer takes dozens of cycles. All threads of the warp must call.
__device__ __forceinline__ int thread_index() {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.x) & 31);
}

// A value that the compiler would rather make again where it is used.
template <class T>
__device__ __forceinline__ T in_register(T v) {
  static_assert(sizeof(T) <= 4);
  auto bits = static_cast<unsigned int>(v);
  asm volatile("" : "+r"(bits));
  return static_cast<T>(bits);
}

// The neighbour-first balanced tree over value(first) ... value(first + K - 1); K is a power of two.
template <int K, class Value>
__device__ __forceinline__ auto tree(const Value& value, int first = 0) {
  if constexpr (K == 1) {
    return value(first);
  } else {
    const auto left = tree<K / 2>(value, first), right = tree<K / 2>(value, first + K / 2);
    return Scalar::add(left, right);
  }
}

// A lane's part of a block's tree over products.
__device__ __forceinline__ float chunk_products(const float (&a)[kChunk], const float (&b)[kChunk]) {
  float p[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p[i] = spec::pair_of_products<Scalar>(a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1]);
  }
  return Scalar::add(Scalar::add(p[0], p[1]), Scalar::add(p[2], p[3]));
}

// The same over plain values, where a pair of products with 1 is a sum.
__device__ __forceinline__ float chunk_sum(const float (&a)[kChunk]) {
  float p[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = Scalar::add(a[2 * i + 1], a[2 * i]);
  return Scalar::add(Scalar::add(p[0], p[1]), Scalar::add(p[2], p[3]));
}

// K trees over `lanes` neighbouring lanes (a power of two), each of one value a lane. Lanes swap halves of what they
// hold while they hold several values (K - 1 shuffles in all instead of K a step). Lane l ends with the sum of value
// l mod K, or, where K > lanes, of values l, l + lanes, ... in s[0], s[1], ....
template <int K>
__device__ __forceinline__ void lane_trees(float (&s)[K], int lane, int lanes) {
#pragma unroll
  for (int step = 0; step < 5; ++step) {
    if ((1 << step) >= lanes) continue;
    if ((K >> step) > 1) {
      const bool odd = (lane >> step) & 1;
#pragma unroll
      for (int j = 0; j < (K >> (step + 1)); ++j) {
        const float keep = odd ? s[2 * j + 1] : s[2 * j], give = odd ? s[2 * j] : s[2 * j + 1];
        s[j] = Scalar::add(keep, from_lane_xor(give, 1 << step));
      }
    } else {
      s[0] = Scalar::add(s[0], from_lane_xor(s[0], 1 << step));
    }
  }
}

// The tree over all lanes' values, the same in every lane.
__device__ __forceinline__ float warp_tree(float v) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) v = Scalar::add(v, from_lane_xor(v, mask));
  return v;
}

// The tree over `count` values in shared memory, at most 32 * kMost, the same in every lane.
template <int kMost>
__device__ __forceinline__ float tree_of_shared(const float* values, int lane, int count) {
  if constexpr (kMost > 1) {
    if (count > 32) {  // neighbours in one lane
      const auto value = [&](int i) { return lane * kMost + i < count ? values[lane * kMost + i] : 0.0f; };
      return warp_tree(tree<kMost>(value));
    }
  }
  return warp_tree(lane < count ? values[lane] : 0.0f);
}

// V trees over `count` values each, the same in every lane: side by side where they have room for that.
template <int kMost, int V>
__device__ __forceinline__ void trees_of_shared(const float* values, int lane, int count, float (&out)[V]) {
  if constexpr (V == 2) {
    if (count <= 16) {
      float v = (lane & 15) < count ? values[(lane >> 4) * count + (lane & 15)] : 0.0f;
#pragma unroll
      for (int mask = 1; mask < 16; mask *= 2) v = Scalar::add(v, from_lane_xor(v, mask));
      out[0] = __shfl_sync(kAllLanes, v, 0);
      out[1] = __shfl_sync(kAllLanes, v, 16);
      return;
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = tree_of_shared<kMost>(values + v * count, lane, count);
}

// spec::TreeSum with its levels `stride` floats apart in memory that the caller has for them; `count` were pushed
// before.
class GroupTree {
 public:
  __device__ __forceinline__ GroupTree(float* levels, int stride, unsigned int count = 0)
      : levels_(levels), stride_(stride), count_(count) {}
  __device__ __forceinline__ void push(float v) {
    int level = 0;
    for (; (count_ >> level) & 1u; ++level) v = Scalar::add(levels_[level * stride_], v);
    levels_[level * stride_] = v;
    ++count_;
  }
  __device__ __forceinline__ float finish() const {
    float sum = 0.0f;
    bool first = true;
    for (int level = 0; (count_ >> level) != 0; ++level) {
      if (((count_ >> level) & 1u) == 0) continue;
      sum = first ? levels_[level * stride_] : Scalar::add(levels_[level * stride_], sum);
      first = false;
    }
    return Scalar::add(sum, 0.0f);
  }

 private:
  float* levels_;
  int stride_;
  unsigned int count_;
};

// The next power of two: a tree's width over C values.
constexpr int padded(int c) { return c <= 2 ? c : c <= 4 ? 4 : 8; }

// Where a thread stands: a thread block has one row of several warps, or several rows of 2^log_lanes lanes each. A warp
// has kChunks neighbouring blocks of a row, a lane a chunk of each.
template <int kChunks>
struct RowPlace {
  static constexpr int kStep = 32 * kChunk;  // columns from a thread's chunk to its next
  int thread, lane;                          // this thread, in its thread block and in its warp
  int lanes, warps;
  int warp;  // this thread's, within its row: `warps` or more where the thread block has warps to spare
  int row;   // this thread's, within its thread block
  int first;

  __device__ __forceinline__ RowPlace(int log_lanes, int warps_of_row)
      : thread(thread_index()), lane(thread & 31), lanes(1 << log_lanes), warps(warps_of_row) {
    row = warps == 1 ? thread >> log_lanes : 0;
    warp = warps == 1 ? 0 : thread >> 5;
    first = (warp * kChunks * 32 + (lane & (lanes - 1))) * kChunk;
  }
  // One thread for each row.
  __device__ __forceinline__ bool leads() const { return first == 0; }
};

// V sums of a row at once, each over C blocks a warp (those from C on are +0), the same in every thread of the row.
// `shared` has V * C * warps floats where a row has more than one warp, and is used once. All threads of the thread
// block must call.
template <int V, int C>
__device__ __forceinline__ void row_sums(const RowPlace<C>& at, float (&s)[V][padded(C)], float* shared,
                                         float (&out)[V]) {
  constexpr int P = padded(C);
  const int lane = at.lane;
  if constexpr (C == 1) {  // a row may have few lanes
#pragma unroll
    for (int v = 0; v < V; ++v) {
      lane_trees<1>(s[v], lane, at.lanes);
      out[v] = s[v][0];
    }
    if (at.warps > 1) {
      if (lane == 0 && at.warp < at.warps) {
#pragma unroll
        for (int v = 0; v < V; ++v) shared[v * at.warps + at.warp] = out[v];
      }
      __syncthreads();
      trees_of_shared<1>(shared, lane, at.warps, out);
    }
  } else {
    float all[V * P];
#pragma unroll
    for (int i = 0; i < V * P; ++i) all[i] = s[i / P][i % P];
    lane_trees<V * P>(all, lane, 32);  // lane l: block l mod P of sum l / P
    if (at.warps == 1) {
#pragma unroll
      for (int step = 1; step < P; step *= 2) all[0] = Scalar::add(all[0], from_lane_xor(all[0], step));
#pragma unroll
      for (int v = 0; v < V; ++v) out[v] = V == 1 ? all[0] : __shfl_sync(kAllLanes, all[0], v * P);
    } else {
      const int blocks = at.warps * C, v = lane / P, c = lane % P;
      if (lane < V * P && c < C && at.warp < at.warps) shared[v * blocks + at.warp * C + c] = all[0];
      __syncthreads();
      trees_of_shared<P>(shared, lane, blocks, out);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = Scalar::add(out[v], 0.0f);
}

}  // namespace truenorm::cuda
