// The backward of many rows, strip by strip: matrices are read once; a strip's weight gradients stay in registers; when
// all strips are done, all thread blocks sum them together.
//
// A team of warps has a strip, and a tile of kRows of its rows at a time. Narrow rows: a team is a warp, or part of
// one, and needs nobody else's sums. Wide rows: a thread block is one team or two; or a cluster of two thread blocks is
// a team, half a row each. Each warp copies the chunks that it will use itself to shared memory of its own, a tile
// ahead (strips_tiles.cuh), so that it waits for no other.
//
// The code is kept short, each part once: instructions come from memory too, and a launch waits for the first of them.
#pragma once

#include "cuda/device/dependent.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/kernels/final_sum.cuh"
#include "cuda/kernels/gradients.cuh"
#include "cuda/kernels/strips_tiles.cuh"

namespace truenorm::cuda {

template <Type kType, int C, bool kLayer, bool kAdd, Team kTeam, bool kWhole, bool kFew>
class Strips : StripsTiles<kType, C, kLayer, kAdd, kTeam, kWhole, kFew> {
  static_assert(kWhole || kType == Type::f32);
  using Tiles = StripsTiles<kType, C, kLayer, kAdd, kTeam, kWhole, kFew>;
  using Tiles::a, Tiles::p, Tiles::thread, Tiles::lane, Tiles::warp, Tiles::slot, Tiles::member;
  using Tiles::first, Tiles::begin, Tiles::own, Tiles::has, Tiles::column_bytes, Tiles::half_of, Tiles::kStep;
  using Tiles::lanes, Tiles::kKernel, Tiles::kRows, Tiles::kWarp, Tiles::kCluster, Tiles::kLag, Tiles::kStages;
  using Tiles::tiles, Tiles::row, Tiles::place, Tiles::places, Tiles::fetch, Tiles::chunk, Tiles::read_statistics,
      Tiles::dx;
  using typename Tiles::Statistics;

  static constexpr int kTeams = kKernel.teams();
  static constexpr int kSums = kLayer ? 2 : 1;
  static constexpr int K = kRows * kSums;  // sums of a tile
  static constexpr int kWidth = padded(C);
  static constexpr bool kSharedWeight = kKernel.shared_weight();

 public:
  __device__ __forceinline__ Strips(const StripsArgs& args, std::byte* memory)
      : Tiles(args, memory),
        barriers(reinterpret_cast<Barrier*>(memory) + slot_of_sums() * kSumPlaces),
        sums(reinterpret_cast<float*>(reinterpret_cast<Barrier*>(memory) + kTeams * kSumPlaces) +
             slot_of_sums() * kSumPlaces * kTileSums),
        scratch(reinterpret_cast<float*>(memory + kKernel.sums_bytes())),
        shared_weight(reinterpret_cast<float4*>(memory + Tiles::kTiles) - 2 * 32 * C) {}

  __device__ __forceinline__ void run() {
    const int clusters = gridDim.x / kCluster;
    int group = blockIdx.x / kCluster;
    // The weight first, where there are registers for it: what is asked for after a tile's rows waits for them.
    constexpr bool kWeightFirst = kWhole && !(kLayer && (kType == Type::f32 || (kWarp && C != 3)));
    using Packed = PackedVec<kWhole>[kSharedWeight ? 1 : C];
    Packed packed;
    if constexpr (kWeightFirst) load_weight(packed);
    bool first_group = true;
    while (true) {
      start_group(group);
      fetch(0, 0);
      if (first_group) {
        if constexpr (!kWarp) init_sums();
        if constexpr (kWeightFirst) {
          unpack_weight(packed);
        } else {
          Packed later;
          load_weight(later);
          unpack_weight(later);
        }
        first_group = false;
      }
      fetch(1, 1);  // not sooner: all thread blocks' first tiles should come before anybody's second
      run_strip(group, group + clusters >= a.groups);
      group += clusters;
      if (group >= a.groups) break;
      __syncthreads();  // the scratch is free
    }
    if (a.partials == nullptr) return;
    // Every thread block has had a group: there are no more of them than groups.
    FinalSums<kKernel.partials()> final_sums(p.dweight, p.dbias, {a.partials, a.groups, a.n, a.pitch});
    grid_wait(a.counter, gridDim.x);
    final_sums.run(scratch);
  }

 private:
  __device__ __forceinline__ int slot_of_sums() const { return kTeam == Team::kHalf ? slot : 0; }

  __device__ __forceinline__ void start_group(int group) {
    this->start_tiles(group);
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) dweight[c][i] = 0.0f;
      if constexpr (kLayer) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) dbias[c][i] = 0.0f;
      }
    }
  }

  template <int kPacked>
  __device__ __forceinline__ void load_weight(PackedVec<kWhole> (&packed)[kPacked]) {
    if constexpr (kSharedWeight) {
      if (warp < C) packed[0].load(a.weight, a.n, first + warp * kStep);
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) packed[c].load(a.weight, has(c) ? a.n : 0, begin + first + c * kStep);
    }
  }

  template <int kPacked>
  __device__ __forceinline__ void unpack_weight(const PackedVec<kWhole> (&packed)[kPacked]) {
    if constexpr (kSharedWeight) {
      if (warp < C) {
        float4* const to = shared_weight + 2 * warp * 32 + lane;
        packed[0].weights(a.weight, a.offset, w[0]);
        to[0] = make_float4(w[0][0], w[0][1], w[0][2], w[0][3]);
        to[32] = make_float4(w[0][4], w[0][5], w[0][6], w[0][7]);
      }
      __syncthreads();
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) packed[c].weights(a.weight, a.offset, w[c]);
    }
  }

  // Barriers, and zeros where a row has no blocks.
  __device__ __forceinline__ void init_sums() {
    if (thread < kTeams * kSumPlaces) {
      // The other thread block of a cluster stores its sums here; one more arrival says how many bytes they are.
      barrier_init(barriers - slot_of_sums() * kSumPlaces + thread, K * C * a.team_warps + (kCluster > 1 ? 1 : 0));
    }
    if constexpr (Tiles::kLargeCopies) {
      const int of = thread - kTeams * kSumPlaces;
      if (of >= 0 && of < places.kBarriers) places.init(of, a.team_warps);
    }
    barrier_init_done();
    auto* const all = reinterpret_cast<float4*>(sums - slot_of_sums() * kSumPlaces * kTileSums);
    for (int i = thread; i < kTeams * kSumPlaces * kTileSums / 4; i += blockDim.x) {
      all[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    kCluster > 1 ? cluster_sync() : __syncthreads();
  }

  // Goes through the tiles of this thread's strip, the first two being under way; while one is used, the next is.
  __device__ __forceinline__ void run_strip(int group, bool last) {
    const int steps = tiles + kLag > 0 ? tiles + kLag : 1, rows = kRows * a.strips;
#pragma unroll 1
    for (int at = 0; at < steps; ++at) {
      if (at < tiles) {
        this->wait_for_tile(at);
        make_sums(turn + at);
      }
      // As soon as all sums are there: the last gradients are made while the partial sums travel.
      if (a.partials != nullptr && at == (tiles > 0 ? tiles - 1 : 0)) {
        publish(group);
        if (last) grid_arrive(a.counter, gridDim.x);
      }
      if (at >= kLag && at - kLag < tiles) {
        const int behind = place - kLag, where = behind < 0 ? behind + kStages : behind;
        make_gradients(turn + at - kLag, row - kLag * rows, where);
        this->done_with_tile(where);
      }
      place = this->next_place();
      row += rows;
      this->wait_for_next_place(at + 2);
      fetch(at + 2, 1);
    }
    turn += tiles;
  }

  // Chunk c of the weight.
  __device__ __forceinline__ void weight_of(int c, float (&v)[kChunk]) const {
    if constexpr (kSharedWeight) {
      const float4 low = shared_weight[2 * c * 32 + lane], high = shared_weight[(2 * c + 1) * 32 + lane];
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
      v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = w[c][i];
    }
  }

  // ---- The sums of the tile at hand, which is tile `turn_of`, and its share of the weight gradients.

  __device__ __forceinline__ void make_sums(int turn_of) {
    const std::byte* const tile = this->tile_at(place);
    Statistics of_rows;
    read_statistics(place, of_rows);
    float part[K * kWidth] = {};
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const int r = row + b * a.strips;
      if (r >= a.m) break;
      const int half = half_of(a.dy, p.dy, r), s_half = half_of(a.s, p.s, r);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (!has(c)) continue;
        float g[kChunk], d[kChunk], t[kChunk], weight[kChunk];
        weight_of(c, weight);
        products<kType, kLayer>(chunk(tile, 0, b, c, p.dy.type, half), chunk(tile, 1, b, c, p.s.type, s_half),
                                of_rows.mean[b], g, d, t);
        if constexpr (kLayer && !kWhole) {  // what is not there is not centred either
          const int there = own - first - c * kStep;
#pragma unroll
          for (int i = 0; i < kChunk; ++i) {
            d[i] = i < there ? d[i] : 0.0f;
            t[i] = i < there ? t[i] : 0.0f;
          }
        }
        part[b * kSums * kWidth + c] = chunk_products(t, weight);
        if constexpr (kLayer) part[(b * kSums + 1) * kWidth + c] = chunk_products(g, weight);
        if (a.plain) {
#pragma unroll
          for (int i = 0; i < kChunk; ++i) {
            dweight[c][i] = Elements::grad_weight(dweight[c][i], t[i], of_rows.rstd[b]);
            if constexpr (kLayer) dbias[c][i] = Elements::grad_bias(dbias[c][i], g[i]);
          }
        } else {
          if (p.dweight.present) add_to_weight<kLayer>(p.round_xhat, p.xhat_type, g, d, t, of_rows.rstd[b], dweight[c]);
          if (kLayer && p.dbias.present) add_to_bias(g, dbias[kLayer ? c : 0]);
        }
      }
    }
    if constexpr (kWarp) {
      lane_trees<K * kWidth>(part, lane, lanes);
#pragma unroll
      for (int mask = 1; mask < kWidth; mask *= 2) part[0] = Scalar::add(part[0], from_lane_xor(part[0], mask));
      sum = part[0];
    } else {
      const int here = turn_of & (kSumPlaces - 1);
      lane_trees<K * kWidth>(part, lane, 32);
      const int which = lane / kWidth,
                c = lane & (kWidth - 1);  // the sum that this lane ends with, of this warp's blocks
      if (lane < K * kWidth && c < C) {
        float* const to =
            sums + here * kTileSums + which * kSlots + (begin == 0 ? 0 : a.team_warps * C) + member * C + c;
        *to = part[0];
        if constexpr (kCluster > 1) store_at_rank(to, barriers + here, begin == 0 ? 1 : 0, part[0]);
        barrier_arrive(barriers + here);
      }
      if constexpr (kCluster > 1) {
        if (thread == 0) barrier_arrive_expecting(barriers + here, K * C * a.team_warps * sizeof(float));
      }
    }
  }

  // Sums of several warps: a lane sums kEach blocks, and kLanes lanes share a sum.
  static constexpr int kLanes = 32 / K;
  static constexpr int kEach = kWarp ? 1 : padded((16 * C * kCluster + kLanes - 1) / kLanes);
  static constexpr int kSlots = kLanes * kEach;  // blocks, those past the row's last being +0
  static_assert(kWarp || K * kSlots <= kTileSums);

  // Tiles take turns in kSumPlaces places. While somebody reads the sums of tile k, it has made those of k + kLag and
  // no others; so nobody has read those of k + kLag + 1, and nobody has made those of k + 2 * kLag + 2.
  static_assert(kSumPlaces >= 2 * kMostLag + 2);
  __device__ __forceinline__ void wait_for_sums(int of) {
    const int there = of & (kSumPlaces - 1);
    barrier_wait(barriers + there, static_cast<unsigned int>(of / kSumPlaces) & 1u);
    const float* const from = sums + there * kTileSums + lane * kEach;
    sum = tree<kEach>([&](int i) { return from[i]; });
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) sum = Scalar::add(sum, from_lane_xor(sum, mask));
  }

  // ---- The gradients of a tile whose first row is `r`, at place `where`.

  __device__ __forceinline__ void make_gradients(int turn_of, int r, int where) {
    if constexpr (!kWarp) wait_for_sums(turn_of);
    Statistics with;
    read_statistics(where, with);
    constexpr int kOfSum = kWarp ? kWidth : kLanes;  // lanes that have the same sum
    const int which = lane / kOfSum % K;
    // The formula of the slope, with 1 for rstd, gives the shift's negative.
    float rstd = kLayer ? 1.0f : with.rstd[0];
#pragma unroll
    for (int b = 0; b < kRows; ++b) rstd = which == b * kSums ? with.rstd[b] : rstd;
    const float slope = spec::minus_slope_of(Scalar::add(sum, 0.0f), static_cast<float>(a.n), rstd);
    const std::byte* const tile = this->tile_at(where);
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      RowSlopes of{with.mean[b], with.rstd[b], 0.0f, 0.0f};
      of.minus_slope = __shfl_sync(kAllLanes, slope, b * kSums * kOfSum, lanes);
      if constexpr (kLayer) of.shift = -__shfl_sync(kAllLanes, slope, (b * kSums + 1) * kOfSum, lanes);
      if (kTogether || r < a.m) make_gradient(tile, b, r, of);
      dx += a.dx.step;
      r += a.strips;
    }
  }

  // Also of rows and chunks that are not there, where lanes store together.
  static constexpr bool kTogether = !kWhole || Tiles::kPairs;
  __device__ __forceinline__ void make_gradient(const std::byte* tile, int b, int r, const RowSlopes& of) {
    const bool there = !kTogether || r < a.m;
    if (!a.in_order && there) dx = row_at<true>(p.dx.present ? p.dx : p.dresidual, r) + column_bytes(a.dx_type);
    const int half = there ? half_of(a.dy, p.dy, r) : 0, s_half = there ? half_of(a.s, p.s, r) : 0;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (!kTogether && !has(c)) continue;
      const Chunk<kType> dy_c = chunk(tile, 0, b, c, p.dy.type, half);
      const Chunk<kType> s_c = chunk(tile, 1, b, c, p.s.type, s_half);
      float v[kChunk], weight[kChunk];
      weight_of(c, weight);
      if constexpr (kAdd) {
        float d[kChunk];
        chunk(tile, 2, b, c, p.ds.type, there ? half_of(a.ds, p.ds, r) : 0).values(d);
        gradient_values<kType, kLayer>(
            dy_c, s_c, weight, of, [&](int i) { return d[i]; }, v);
      } else {
        gradient_values<kType, kLayer>(dy_c, s_c, weight, of, v);
      }
      this->store(a.dx_type, dx, there, tile, b, c, v);
      if (a.two_outputs) {
        const Type type = p.dresidual.type;
        std::byte* const to = there ? row_at<true>(p.dresidual, r) + column_bytes(type) : nullptr;
        this->store(type, to, there, tile, b, c, v);
      }
    }
  }

  // ---- Partial sums: the tree over the thread block's own strips, which are neighbours, to where all see it.

  __device__ __forceinline__ void publish(int group) {
    float* to = a.partials + std::int64_t{group} * a.pitch + begin;
    if (p.dweight.present) {
      publish(dweight, to);
      to += std::int64_t{a.groups} * a.pitch;
    }
    if constexpr (kLayer) {
      if (p.dbias.present) publish(dbias, to);
    }
  }

  __device__ __forceinline__ void publish(float (&v)[C][kChunk], float* to) {
    if constexpr (kWarp) {
      const auto of_warps = [&](const auto& value) { return a.teams == 16 ? tree<16>(value) : tree<8>(value); };
      __syncthreads();
      if (C == 1 && lanes < 32) {
        const int columns = lanes * kChunk;
        float* const to_warp = scratch + warp * columns;
        lanes == 16 ? tree_over_lanes<kChunk, 16>(v[0], to_warp) : tree_over_lanes<kChunk, 8>(v[0], to_warp);
        __syncthreads();
        if (thread < columns && thread < a.pitch) {
          __stcg(to + thread, of_warps([&](int j) { return scratch[j * columns + thread]; }));
        }
        return;
      }
      // All chunks at once, where this warp's tiles lay.
      int* const places = reinterpret_cast<int*>(scratch);  // of each warp
      std::byte* const mine = this->tiles_at - this->free_place(warp, 0, 0, 0) + (kWhole ? 0 : lane * 16);
      const int where = this->next_place();
#pragma unroll
      for (int c = 0; c < C; ++c) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          auto* const half = reinterpret_cast<float4*>(mine + this->free_place(warp, where, c, h));
          *half = make_float4(v[c][4 * h], v[c][4 * h + 1], v[c][4 * h + 2], v[c][4 * h + 3]);
        }
      }
      if (lane == 0) places[warp] = where;
      __syncthreads();
      const std::byte* const all = mine - lane * 16;
      for (int i = thread; i < C * kStep; i += static_cast<int>(blockDim.x)) {
        const int c = i >> 8, h = (i >> 7) & 1, in_half = i & 127;
        const int column = c * kStep + (in_half >> 2) * kChunk + h * 4 + (in_half & 3);
        if (column >= a.pitch) continue;
        __stcg(to + column, of_warps([&](int j) {
                 const auto* const half = reinterpret_cast<const float*>(all + this->free_place(j, places[j], c, h));
                 return half[in_half];
               }));
      }
    } else {
      if constexpr (kTeam == Team::kHalf) {
        auto* const mine = reinterpret_cast<float4*>(scratch) + 2 * member * 32 + lane;
        __syncthreads();
        if (slot == 1) {
          mine[0] = make_float4(v[0][0], v[0][1], v[0][2], v[0][3]);
          mine[32] = make_float4(v[0][4], v[0][5], v[0][6], v[0][7]);
        }
        __syncthreads();
        if (slot == 1) return;
        const float4 low = mine[0], high = mine[32];
        const float other[kChunk] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < kChunk; ++i) v[0][i] = Scalar::add(v[0][i], other[i]);
      }
#pragma unroll
      for (int c = 0; c < C; ++c) {
        store_pairs(to + first + c * kStep, own - first - c * kStep, lane, v[c],
                    [](float4* where, const float4& what) { __stcg(where, what); });
      }
    }
  }

  Barrier* const barriers;  // of this team's sums
  float* const sums;
  float* const scratch;
  float4* const shared_weight;  // of a row: for each chunk the lanes' first halves, then the second
  int turn = 0;                 // tiles of strips before, which go on taking turns among the places of sums
  float sum = 0.0f;
  float w[kSharedWeight ? 1 : C][kChunk], dweight[C][kChunk], dbias[kLayer ? C : 1][kChunk];
};

template <Type kType, int C, bool kLayer, bool kAdd, Team kTeam, bool kWhole, bool kFew>
__global__ void __launch_bounds__(strips_kernel(kType, C, kLayer, kAdd, kTeam, kWhole, kFew).threads(), 1)
    backward_strips_kernel(const __grid_constant__ StripsArgs args) {
  begin_kernel(args.early, args.n, args.weight);
  extern __shared__ __align__(128) std::byte memory[];
  Strips<kType, C, kLayer, kAdd, kTeam, kWhole, kFew>(args, memory).run();
}

}  // namespace truenorm::cuda
