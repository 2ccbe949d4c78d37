// The backward of many rows, strip by strip: matrices are read once; a strip's weight gradients stay in registers; when
// all strips are done, all thread blocks sum them together.
//
// A team of warps has a strip, and a tile of kRows of its rows at a time. Narrow rows: a team is a warp, or part of one,
// and needs nobody else's sums. Wide rows: a thread block is one team or two; or a cluster of two thread blocks is a
// team, half a row each. Each thread copies the chunks that it will use itself, some tiles ahead, to shared memory of
// its own, so that it waits for nobody.
//
// The code is kept short, each part once: instructions come from memory too, and a launch waits for the first of them.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/kernels/backward_rows.cuh"
#include "cuda/kernels/final_sum.cuh"
#include "cuda/tuning/strips.hpp"

namespace truenorm::cuda {

// What a launch is given: first what every thread needs, close together.
struct StripsArgs {
  struct Matrix {
    std::byte* data;
    std::int64_t stride;  // bytes from a row to the next
  };
  Matrix dy, s, ds, dx;  // dx: the first of the outputs
  const float *rstd, *mean;
  int m, n, log_strips, groups, log_lanes, teams, team_warps, columns, ahead;
  Type dx_type;
  bool in_order;     // all matrices have their rows at equal distances: `stride` is all there is to know
  bool two_outputs;  // dresidual as well as dx
  bool plain;        // the usual gradients of vectors, and no others
  float* partials;   // [dweight?, dbias?][groups][n]; null where neither is asked for
  unsigned int* counter;  // zero before and after
  spec::BackwardCall call;
};

template <Type kType, int C, int kRows, bool kLayer, bool kAdd, Team kTeam>
class Strips {
  static constexpr bool kSingle = kType == Type::f32;
  static constexpr bool kWarp = kTeam == Team::kWarp;
  static constexpr int kTeams = strips_teams(kTeam);
  static constexpr int kCluster = kTeam == Team::kCluster ? 2 : 1;
  static constexpr int kLag = strips_lag(C, kSingle, kAdd, kTeam);
  static constexpr int kSums = kLayer ? 2 : 1;
  static constexpr int K = kRows * kSums;  // sums of a tile
  static constexpr int kWidth = padded(C);
  static constexpr bool kSharedWeight = strips_shared_weight(C, kTeam);
  static constexpr int kStep = 32 * kChunk;  // columns from a chunk of a thread to its next

  // Shared memory.
  static constexpr int kSumsBytes = static_cast<int>(strips_sums_bytes(kTeam));
  static constexpr int kScratchBytes = static_cast<int>(strips_scratch_bytes(C, kTeam));
  static constexpr int kStatisticsBytes = static_cast<int>(kStripsStatisticsBytes);
  static constexpr int kTileBytes = static_cast<int>(strips_tile_bytes(C, kRows, kSingle, kAdd, kTeam));
  static constexpr int kPlane = strips_threads(C, kTeam) * 16;  // 16 bytes for each thread
  static constexpr int kHalves = kSingle ? 2 : 1;        // planes of a chunk
  static constexpr int kMatrix = kRows * C * kHalves * kPlane;

 public:
  __device__ __forceinline__ Strips(const StripsArgs& args, std::byte* memory)
      : a(args),
        p(args.call),
        barriers(reinterpret_cast<Barrier*>(memory)),
        sums(reinterpret_cast<float*>(barriers + kTeams * kSumPlaces)),
        scratch(reinterpret_cast<float*>(memory + kSumsBytes)),
        thread(thread_index()),
        lane(thread & 31),
        warp(thread >> 5),
        tiles_at(memory + kSumsBytes + kScratchBytes + thread * 16) {
    shared_weight = reinterpret_cast<float4*>(memory + kSumsBytes + kScratchBytes) - 2 * 32 * C;
    statistics = reinterpret_cast<float*>(memory + kSumsBytes + kScratchBytes + (a.ahead + 1 + kLag) * kTileBytes) + warp * 32;
    if constexpr (kWarp) {
      slot = thread >> a.log_lanes;
      first = (lane & ((1 << a.log_lanes) - 1)) * kChunk;
      own = a.n;
    } else {
      if (kTeam == Team::kHalf && warp >= a.team_warps) {
        slot = 1;
        barriers += kSumPlaces;
        sums += kSumPlaces * kTileSums;
      }
      member = warp - slot * a.team_warps;
      first = (member * C * 32 + lane) * kChunk;
      if constexpr (kCluster > 1) begin = static_cast<int>(cluster_rank()) * a.columns;
      own = a.n - begin < a.columns ? a.n - begin : a.columns;
    }
    stages = a.ahead + 1 + kLag;
  }

  __device__ __forceinline__ void run() {
    const int clusters = gridDim.x / kCluster;
    int group = blockIdx.x / kCluster;
    start_group(group);
    // Rows of the first tiles are under way before anything else is asked for.
    for (; at < 0; ++at) fetch();
    PackedVec<true> packed[C];
#pragma unroll
    for (int c = 0; c < C; ++c) packed[c].load(p.weight, has(c) ? a.n : 0, begin + first + c * kStep);
    if constexpr (!kWarp) init_sums();
#pragma unroll
    for (int c = 0; c < C; ++c) {
      packed[c].weights(p.weight, spec::effective_offset(p.offset), w[kSharedWeight ? 0 : c]);
      if constexpr (kSharedWeight) {  // every warp stores the same
        shared_weight[2 * c * 32 + lane] = make_float4(w[0][0], w[0][1], w[0][2], w[0][3]);
        shared_weight[(2 * c + 1) * 32 + lane] = make_float4(w[0][4], w[0][5], w[0][6], w[0][7]);
      }
    }
    if constexpr (kSharedWeight) __syncthreads();
    while (true) {
      run_strip(group, group + clusters >= a.groups);
      group += clusters;
      if (group >= a.groups) break;
      __syncthreads();  // the scratch is free
      start_group(group);
      for (; at < 0; ++at) fetch();
    }
    if (a.partials == nullptr) return;
    // Every thread block has had a group: there are no more of them than groups.
    constexpr int kPartials = static_cast<int>(spec::kBlocksOfStrips) / kCluster;
    FinalSums<kPartials> final_sums(p.dweight, p.dbias, {a.partials, a.groups, a.n});
    grid_wait(a.counter, gridDim.x);
    final_sums.run(scratch);
  }

 private:
  struct Statistics {
    float mean[kRows], rstd[kRows];
  };

  __device__ __forceinline__ bool has(int c) const { return first + c * kStep < own; }
  // Row b of tile k, of this thread's strip.
  __device__ __forceinline__ int row(int k, int b) const { return base + ((k * kRows + b) << a.log_strips); }
  __device__ __forceinline__ std::int64_t column_bytes(Type type) const {
    return std::int64_t{begin + first} * bytes_each<kType>(type);
  }
  __device__ __forceinline__ static std::byte* of_row(const StripsArgs::Matrix& t, int r) {
    return t.data + r * t.stride;
  }

  __device__ __forceinline__ void start_group(int group) {
    base = group * a.teams * (32 >> a.log_lanes) + slot;
    tiles = base < a.m ? ((a.m - base - 1) >> a.log_strips) / kRows + 1 : 0;
    if constexpr (kWarp) {  // a warp's lanes go together, as far as its first strip
      const int leader = base - (lane >> a.log_lanes);
      tiles = leader < a.m ? ((a.m - leader - 1) >> a.log_strips) / kRows + 1 : 0;
    }
    at = -a.ahead;
    dy = of_row(a.dy, base) + column_bytes(p.dy.type);
    s = of_row(a.s, base) + column_bytes(p.s.type);
    if constexpr (kAdd) ds = of_row(a.ds, base) + column_bytes(p.ds.type);
    dx = of_row(a.dx, base) + column_bytes(a.dx_type);
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

  // Barriers, and zeros where a row has no blocks.
  __device__ __forceinline__ void init_sums() {
    if (thread < kTeams * kSumPlaces) {
      // The other thread block of a cluster stores its sums here; one more arrival says how many bytes they are.
      barrier_init(barriers - slot * kSumPlaces + thread, a.team_warps + (kCluster > 1 ? 1 : 0));
    }
    barrier_init_done();
    auto* const all = reinterpret_cast<float4*>(sums - slot * kSumPlaces * kTileSums);
    for (int i = thread; i < kTeams * kSumPlaces * kTileSums / 4; i += blockDim.x) {
      all[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    kCluster > 1 ? cluster_sync() : __syncthreads();
  }

  // Goes through the tiles of this thread's strip; while tile `at` is used, `ahead` more are under way.
  __device__ __forceinline__ void run_strip(int group, bool last) {
    const int steps = tiles + kLag > 0 ? tiles + kLag : 1;
#pragma unroll 1
    for (; at < steps; ++at) {
      fetch();
      if (at < tiles) {
        copies_wait(a.ahead);
        __syncwarp();
        make_sums();
      }
      // As soon as all sums are there: the last gradients are made while the partial sums travel.
      if (a.partials != nullptr && at == (tiles > 0 ? tiles - 1 : 0)) {
        publish(group);
        if (last) grid_arrive(a.counter, gridDim.x);
      }
      if (at >= kLag && at - kLag < tiles) make_gradients(at - kLag);
      place = place + 1 == stages ? 0 : place + 1;
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

  // ---- Tiles in shared memory.

  // Copies what this thread has of tile `at` + `ahead`.
  __device__ __forceinline__ void fetch() {
    const int k = at + a.ahead;
    if (k < tiles) {
      int there = place + a.ahead;
      if (there >= stages) there -= stages;
      const unsigned int to = shared_address(tiles_at) + there * kTileBytes;
      // A few lanes copy their warp's statistics.
      const int log_slots = kWarp ? 5 - a.log_lanes : 0;
      const int r_of_lane =
          row(k, lane >> log_slots) - (kWarp ? lane >> a.log_lanes : 0) + (lane & ((1 << log_slots) - 1));
      if (lane < kRows << log_slots && r_of_lane < a.m) {
        const unsigned int at_word = shared_address(statistics + lane) + there * kStatisticsBytes;
        copy_word_async(at_word, a.rstd + r_of_lane);
        if constexpr (kLayer) copy_word_async(at_word + 64, a.mean + r_of_lane);
      }
#pragma unroll
      for (int b = 0; b < kRows; ++b) {
        const int r = row(k, b);
        if (r >= a.m) break;
        if (!a.in_order) {
          dy = row_at<true>(p.dy, r) + column_bytes(p.dy.type);
          s = row_at<true>(p.s, r) + column_bytes(p.s.type);
          if constexpr (kAdd) ds = row_at<true>(p.ds, r) + column_bytes(p.ds.type);
        }
        copy_row(to + b * C * kHalves * kPlane, dy, p.dy.type);
        copy_row(to + b * C * kHalves * kPlane + kMatrix, s, p.s.type);
        if constexpr (kAdd) copy_row(to + b * C * kHalves * kPlane + 2 * kMatrix, ds, p.ds.type);
        dy += a.dy.stride << a.log_strips;
        s += a.s.stride << a.log_strips;
        if constexpr (kAdd) ds += a.ds.stride << a.log_strips;
      }
    }
    copies_commit();
    if (at < 0) place = place + 1 == stages ? 0 : place + 1;
  }

  __device__ __forceinline__ void copy_row(unsigned int to, const std::byte* from, Type type) const {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (!has(c)) continue;
      if (!kSingle || type != Type::f32) {
        copy_async(to + c * kHalves * kPlane, from + c * kStep * 2);
      } else {
        copy_async(to + c * kHalves * kPlane, from + c * kStep * 4);
        copy_async(to + c * kHalves * kPlane + kPlane, from + c * kStep * 4 + 16);
      }
    }
  }

  // Chunk c of row b of a matrix (0: dy, 1: s, 2: ds).
  __device__ __forceinline__ Chunk<kType> chunk(const std::byte* tile, int matrix, int b, int c, Type type) const {
    const std::byte* const from = tile + matrix * kMatrix + (b * C + c) * kHalves * kPlane;
    const uint4 low = *reinterpret_cast<const uint4*>(from);
    Chunk<kType> v;
    if constexpr (!kSingle) {
      v.raw = low;
    } else if (type == Type::f32) {
      const uint4 high = *reinterpret_cast<const uint4*>(from + kPlane);
      v.v[0] = __uint_as_float(low.x), v.v[1] = __uint_as_float(low.y), v.v[2] = __uint_as_float(low.z);
      v.v[3] = __uint_as_float(low.w), v.v[4] = __uint_as_float(high.x), v.v[5] = __uint_as_float(high.y);
      v.v[6] = __uint_as_float(high.z), v.v[7] = __uint_as_float(high.w);
    } else {
      widen8(type, low, v.v);
    }
    return v;
  }

  // The statistics of a tile's rows, of this thread's strip.
  __device__ __forceinline__ void read_statistics(int where, Statistics& of) const {
    const float* const from = statistics + where * kStatisticsBytes / sizeof(float) + (kWarp ? lane >> a.log_lanes : 0);
    const int log_slots = kWarp ? 5 - a.log_lanes : 0;
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      of.rstd[b] = from[b << log_slots];
      of.mean[b] = kLayer ? from[(b << log_slots) + 16] : 0.0f;
    }
  }

  // ---- The sums of tile `at`, and its share of the weight gradients.

  __device__ __forceinline__ void make_sums() {
    const std::byte* const tile = tiles_at + place * kTileBytes;
    Statistics of_rows;
    read_statistics(place, of_rows);
    float part[K * kWidth] = {};
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (row(at, b) >= a.m || !has(c)) continue;
        float g[kChunk], d[kChunk], t[kChunk], weight[kChunk];
        weight_of(c, weight);
        products<kType, kLayer>(chunk(tile, 0, b, c, p.dy.type), chunk(tile, 1, b, c, p.s.type), of_rows.mean[b], g, d, t);
        part[b * kSums * kWidth + c] = chunk_products(t, weight);
        if constexpr (kLayer) part[(b * kSums + 1) * kWidth + c] = chunk_products(g, weight);
        if (a.plain) {
#pragma unroll
          for (int i = 0; i < kChunk; ++i) {
            dweight[c][i] = Elements::grad_weight(dweight[c][i], t[i], of_rows.rstd[b]);
            if constexpr (kLayer) dbias[c][i] = Elements::grad_bias(dbias[c][i], g[i]);
          }
        } else {
          if (p.dweight.present) add_to_weight<kLayer>(p, g, d, t, of_rows.rstd[b], dweight[c]);
          if (kLayer && p.dbias.present) add_to_bias(g, dbias[kLayer ? c : 0]);
        }
      }
    }
    if constexpr (kWarp) {
      lane_trees<K * kWidth>(part, lane, C == 1 ? 1 << a.log_lanes : 32);
#pragma unroll
      for (int mask = 1; mask < kWidth; mask *= 2) part[0] = Scalar::add(part[0], from_lane_xor(part[0], mask));
      sum = part[0];
    } else {
      const int here = (turn + at) & (kSumPlaces - 1);
      lane_trees<K * kWidth>(part, lane, 32);
      const int which = lane / kWidth, c = lane & (kWidth - 1);  // the sum that this lane ends with, of this warp's blocks
      if (lane < K * kWidth && c < C) {
        float* const to = sums + here * kTileSums + which * kSlots + (begin == 0 ? 0 : a.team_warps * C) + member * C + c;
        *to = part[0];
        if constexpr (kCluster > 1) store_at_rank(to, barriers + here, begin == 0 ? 1 : 0, part[0]);
      }
      if constexpr (kCluster > 1) {
        if (thread == 0) barrier_arrive_expecting(barriers + here, K * C * a.team_warps * sizeof(float));
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers + here);
    }
  }

  // Sums of several warps: a lane sums kEach blocks, and kLanes lanes share a sum.
  static constexpr int kLanes = 32 / K;
  static constexpr int kEach = kWarp ? 1 : padded((16 * C * kCluster + kLanes - 1) / kLanes);
  static constexpr int kSlots = kLanes * kEach;  // blocks, those past the row's last being +0
  static_assert(kWarp || K * kSlots <= kTileSums);

  // Tiles take turns in kSumPlaces places. While somebody reads the sums of tile k, it has made those of k + kLag and no
  // others; so nobody has read those of k + kLag + 1, and nobody has made those of k + 2 * kLag + 2.
  static_assert(kSumPlaces >= 2 * kMostLag + 2);
  __device__ __forceinline__ void wait_for_sums(int of) {
    const int there = of & (kSumPlaces - 1);
    barrier_wait(barriers + there, static_cast<unsigned int>(of / kSumPlaces) & 1u);
    const float* const from = sums + there * kTileSums + lane * kEach;
    sum = tree<kEach>([&](int i) { return from[i]; });
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) sum = Scalar::add(sum, from_lane_xor(sum, mask));
  }

  // ---- The gradients of tile k.

  __device__ __forceinline__ void make_gradients(int k) {
    if constexpr (!kWarp) wait_for_sums(turn + k);
    const int behind = place - kLag, where = behind < 0 ? behind + stages : behind;
    Statistics with;
    read_statistics(where, with);
    constexpr int kOfSum = kWarp ? kWidth : kLanes;  // lanes that have the same sum
    const int which = lane / kOfSum % K;
    // The formula of the slope, with 1 for rstd, gives the shift's negative.
    float rstd = kLayer ? 1.0f : with.rstd[0];
#pragma unroll
    for (int b = 0; b < kRows; ++b) rstd = which == b * kSums ? with.rstd[b] : rstd;
    const float slope = spec::minus_slope_of(Scalar::add(sum, 0.0f), static_cast<float>(a.n), rstd);
    const std::byte* const tile = tiles_at + where * kTileBytes;
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const int lanes = kWarp && C == 1 ? 1 << a.log_lanes : 32;
      RowSlopes of{with.mean[b], with.rstd[b], 0.0f, 0.0f};
      of.minus_slope = __shfl_sync(kAllLanes, slope, b * kSums * kOfSum, lanes);
      if constexpr (kLayer) of.shift = -__shfl_sync(kAllLanes, slope, (b * kSums + 1) * kOfSum, lanes);
      const int r = row(k, b);
      if (r < a.m) make_gradient(tile, b, r, of);
      dx += a.dx.stride << a.log_strips;
    }
  }

  __device__ __forceinline__ void make_gradient(const std::byte* tile, int b, int r, const RowSlopes& of) {
    if (!a.in_order) dx = row_at<true>(p.dx.present ? p.dx : p.dresidual, r) + column_bytes(a.dx_type);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (!has(c)) continue;
      const Chunk<kType> dy_c = chunk(tile, 0, b, c, p.dy.type), s_c = chunk(tile, 1, b, c, p.s.type);
      float v[kChunk], weight[kChunk];
      weight_of(c, weight);
      if constexpr (kAdd) {
        float d[kChunk];
        chunk(tile, 2, b, c, p.ds.type).values(d);
        gradient_values<kType, kLayer>(
            dy_c, s_c, weight, of, [&](int i) { return d[i]; }, v);
      } else {
        gradient_values<kType, kLayer>(dy_c, s_c, weight, of, v);
      }
      store_whole<kType>(a.dx_type, dx + c * kStep * bytes_each<kType>(a.dx_type), v);
      if (a.two_outputs) {
        store_whole<kType>(p.dresidual.type,
                           row_at<true>(p.dresidual, r) + column_bytes(p.dresidual.type) +
                               c * kStep * bytes_each<kType>(p.dresidual.type),
                           v);
      }
    }
  }

  // ---- Partial sums: the tree over the thread block's own strips, which are neighbours, to where all see it.

  __device__ __forceinline__ void publish(int group) {
    float* to = a.partials + std::int64_t{group} * a.n + begin;
    if (p.dweight.present) {
      publish(dweight, to);
      to += std::int64_t{a.groups} * a.n;
    }
    if constexpr (kLayer) {
      if (p.dbias.present) publish(dbias, to);
    }
  }

  __device__ __forceinline__ void publish(float (&v)[C][kChunk], float* to) {
    if constexpr (kWarp) {
      const int pitch = C == 1 ? kChunk << a.log_lanes : C * kStep;
      __syncthreads();
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float* const to_warp = scratch + warp * pitch + c * kStep;
        if (C > 1 || a.log_lanes == 5) {
          tree_over_lanes<kChunk, 32>(v[c], to_warp);
        } else if (a.log_lanes == 4) {
          tree_over_lanes<kChunk, 16>(v[c], to_warp);
        } else {
          tree_over_lanes<kChunk, 8>(v[c], to_warp);
        }
      }
      __syncthreads();
      for (int i = thread; i < a.n; i += blockDim.x) {
        const auto of_warp = [&](int j) { return scratch[j * pitch + i]; };
        __stcg(to + i, a.teams == 16 ? tree<16>(of_warp) : tree<8>(of_warp));
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
        if (!has(c)) continue;
        auto* const place_of = reinterpret_cast<float4*>(to + first + c * kStep);
        __stcg(place_of, make_float4(v[c][0], v[c][1], v[c][2], v[c][3]));
        __stcg(place_of + 1, make_float4(v[c][4], v[c][5], v[c][6], v[c][7]));
      }
    }
  }

  const StripsArgs& a;
  const spec::BackwardCall& p;
  Barrier* barriers;  // of this team's sums
  float* sums;
  float* const scratch;
  const int thread, lane, warp;
  std::byte* const tiles_at;  // this thread's
  float4* shared_weight;  // of a row: for each chunk the lanes' first halves, then the second
  float* statistics;    // this warp's: of each stage 16 values of rstd, 16 of mean
  int slot = 0;         // this thread's strip, of the thread block's
  int member = 0;       // this warp, of its team's
  int first, begin = 0, own;  // columns: this thread's first, the thread block's first and number
  int stages;
  int base, tiles, at;  // of this thread's strip: its first row, its tiles, the one at hand
  int place = 0;        // of the tile at hand among stages
  int turn = 0;         // tiles of strips before, which go on taking turns among the places of sums
  std::byte *dy, *s, *ds, *dx;  // this thread's columns of rows to come
  float sum = 0.0f;
  float w[kSharedWeight ? 1 : C][kChunk], dweight[C][kChunk], dbias[kLayer ? C : 1][kChunk];
};

template <Type kType, int C, int kRows, bool kLayer, bool kAdd, Team kTeam>
__global__ void __launch_bounds__(strips_threads(C, kTeam), 1)
    backward_strips_kernel(const __grid_constant__ StripsArgs args) {
  extern __shared__ __align__(128) std::byte memory[];
  Strips<kType, C, kRows, kLayer, kAdd, kTeam>(args, memory).run();
}

}  // namespace truenorm::cuda
