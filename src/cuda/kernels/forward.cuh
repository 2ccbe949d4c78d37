// The forward of rows that a thread block can hold: one row for each group of threads, C chunks of it in each thread.
//
// A row is copied to shared memory and stays there between its sums and its output, and so do weight and bias, which
// are under way meanwhile. So a thread needs few registers, and a multiprocessor has many rows in flight, each at
// another stage: memory is kept busy without loops, and without rows loaded ahead.
#pragma once

#include "cuda/device/anywhere.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/rows.hpp"
#include "cuda/device/weights.cuh"
#include "cuda/tuning/forward.hpp"
#include "spec/norm.hpp"

namespace truenorm::cuda {

// What a launch is given.
struct ForwardArgs {
  unsigned int m;
  int n, log_lanes, warps, rows;  // as ForwardPlan has them
  float eps, offset;              // offset: as effective_offset gives it
  bool cached;
  bool round_xhat;
  bool plain;  // the usual operands: of one type, a weight, and a bias in LayerNorm only
  Type xhat_type, s_type;
  RowsAt x;
  Vec weight, bias;
  RowsAt y;
  float *mean, *rstd;
  RowsAt residual, s;
};

// A chunk of xhat from one of s; finish_output makes it y.
template <Type kType, bool kLayer, class Call>
__device__ __forceinline__ void xhat_values(const Call& p, const Chunk<kType>& s, float mean, float rstd,
                                            float (&y)[kChunk]) {
  s.values(y);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::normalised(kLayer ? Elements::centred(y[i], mean) : y[i], rstd);
  if (!kLayer && p.round_xhat) round8(kType == Type::f32 ? p.xhat_type : kType, y);
}

__device__ __forceinline__ void finish_output(const float (&w)[kChunk], const float (&b)[kChunk], float (&y)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::output(y[i], w[i], b[i]);
}
__device__ __forceinline__ void finish_output(const float (&w)[kChunk], float (&y)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) y[i] = Elements::output(y[i], w[i], spec::kNoAddend);
}

// s = x + residual as it is stored.
template <Type kType>
__device__ __forceinline__ void add_residual(Type s_type, Chunk<kType>& x, const Chunk<kType>& residual,
                                             float (&s)[kChunk]) {
  float r[kChunk];
  x.values(s);
  residual.values(r);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) s[i] = Elements::residual_sum(s[i], r[i]);
  if constexpr (kType == Type::f32) round8(s_type, s);
  x.set(s);
}

// Where a thread stands, and where its chunks are in shared memory: a thread block's runs side by side, chunk after
// chunk. FP32's chunks and those of rows that start anywhere take 32 bytes, others 16; a run of the latter has a word
// more.
template <int C, bool kWhole>
struct ForwardPlace {
  static constexpr int kStep = 32 * kChunk;  // columns from a thread's chunk to its next
  int thread, lane, lanes, in_run, row, warp, first, run, runs, threads;

  __device__ __forceinline__ explicit ForwardPlace(const ForwardArgs& p)
      : thread(thread_index()), lane(thread & 31), lanes(1 << p.log_lanes), in_run(lane & (lanes - 1)) {
    row = p.warps == 1 ? thread >> p.log_lanes : 0;
    warp = p.warps == 1 ? 0 : thread >> 5;
    first = (warp * C * 32 + in_run) * kChunk;
    threads = blockDim.x;
    run = thread >> p.log_lanes;
    runs = threads >> p.log_lanes;
  }
  // Of C chunks of all threads.
  __device__ __forceinline__ int bytes(int of_chunk) const {
    return C * (kWhole ? threads * of_chunk : runs * run_bytes(lanes));
  }
  // This run's chunk c.
  __device__ __forceinline__ int of_run(int c, int of_chunk) const {
    return kWhole ? (c * threads + thread - in_run) * of_chunk : (c * runs + run) * run_bytes(lanes);
  }
};

// A value that the compiler would rather ask for again where it is used.
__device__ __forceinline__ int in_register(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

// C chunks of a matrix's row or of a vector, in shared memory.
template <Type kType, int C, bool kWhole>
struct Side {
  using Place = ForwardPlace<C, kWhole>;
  const Place& at;
  std::byte* memory;
  Type type;     // as it lies there
  int of_chunk;  // bytes
  int half = 0;  // of rows that start anywhere: how far into a word

  // Asks for columns of a row, or of a vector, that has `columns`: none where that is 0.
  template <bool kVector>
  __device__ __forceinline__ void copy(const std::byte* row, int columns, bool cached) {
    const int size = type == Type::f32 ? 4 : 2;
    if constexpr (!kWhole) {
      half = half_word(row);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int column = at.first - at.in_run * kChunk + c * Place::kStep;
        copy_run(shared_address(memory + at.of_run(c, of_chunk)), row + std::int64_t{column} * size,
                 (columns - column) * size, type, at.in_run, at.lanes);
      }
    } else {
      // Neighbouring lanes copy neighbouring sixteen bytes: of FP32, which has twice as many, in two turns.
      const bool two = (kVector || kType == Type::f32) && type == Type::f32;
      const int column = at.first - (two ? at.in_run * (kChunk / 2) : 0);
      const std::byte* const from = row + std::int64_t{column} * size;
      const unsigned int to = shared_address(memory + at.of_run(0, of_chunk)) + at.in_run * (two ? 16 : of_chunk);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const auto copy_if = [&](bool there, int bytes, int further) {
          const unsigned int place = to + c * at.threads * of_chunk + bytes;
          const std::byte* const source = from + c * Place::kStep * size + further;
          if (kVector && cached) {
            copy_async_cached_if(there, place, source);
          } else {
            copy_async_if(there, place, source);
          }
        };
        copy_if(column + c * Place::kStep < columns, 0, 0);
        if (kVector || kType == Type::f32) {
          copy_if(two && column + c * Place::kStep + at.lanes * 4 < columns, at.lanes * 16, at.lanes * 16);
        }
      }
    }
  }

  // `is`: the type, where it is known better.
  __device__ __forceinline__ void values(int c, Type is, float (&v)[kChunk]) const {
    const std::byte* const run = memory + at.of_run(c, of_chunk);
    if constexpr (!kWhole) {
      values_of_run(is, run, half, at.in_run, v);
    } else {
      const auto* const own = reinterpret_cast<const uint4*>(run + at.in_run * of_chunk);
      if (is == Type::f32) {
        values_of_halves(is, own[0], own[1], v);
      } else {
        widen8(is, own[0], v);
      }
    }
  }
};

// V sums of a row at once, the same in every thread of the row. `shared` has 32 floats for each where a row has several
// warps: +0 where there is none. All threads of the thread block call.
template <int V, int C, bool kWhole>
__device__ __forceinline__ void forward_sums(const ForwardPlace<C, kWhole>& at, int warps, float (&s)[V * padded(C)],
                                             float* shared, float (&out)[V]) {
  constexpr int P = padded(C);
  if constexpr (C == 1) {  // a row may have few lanes
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float one[1] = {s[v]};
      lane_trees<1>(one, at.lane, at.lanes);
      out[v] = one[0];
    }
  } else {
    lane_trees<V * P>(s, at.lane, 32);  // lane l: block l mod P of sum l / P
#pragma unroll
    for (int step = 1; step < P; step *= 2) s[0] = Scalar::add(s[0], from_lane_xor(s[0], step));
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = V == 1 ? s[0] : __shfl_sync(kAllLanes, s[0], v * P);
  }
  if (warps > 1) {
    if (at.lane == 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) shared[v * 32 + at.warp] = out[v];
    }
    __syncthreads();
    if (warps <= 8) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const auto* const sums = reinterpret_cast<const float4*>(shared + v * 32);
        const float4 a = sums[0], b = sums[1];
        const float low = Scalar::add(Scalar::add(a.x, a.y), Scalar::add(a.z, a.w));
        out[v] = Scalar::add(low, Scalar::add(Scalar::add(b.x, b.y), Scalar::add(b.z, b.w)));
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) out[v] = warp_tree(shared[v * 32 + at.lane]);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = Scalar::add(out[v], 0.0f);
}

// For the registers' sake, which are at most 64 and 80 then: no kernel spills, nor does it take many more than it
// needs.
template <bool kWhole>
inline constexpr int kForwardBounds = kWhole ? 1024 : kForwardThreads;

template <Type kType, int C, bool kLayer, bool kAdd, bool kWhole>
__global__ void __launch_bounds__(kForwardBounds<kWhole>) forward_kernel(const __grid_constant__ ForwardArgs p) {
  static_assert(kWhole || kType == Type::f32);
  extern __shared__ float4 forward_memory[];
  constexpr int P = padded(C), kStep = 32 * kChunk;
  constexpr bool kSingle = kType == Type::f32;
  constexpr int kOfChunk = kSingle ? 32 : 16;
  constexpr Type kKept = kAdd ? kType : Type::f32;
  using Values = Side<kType, C, kWhole>;
  const ForwardPlace<C, kWhole> at(p);
  const unsigned int r = blockIdx.x * p.rows + at.row;
  const int n = p.n, here = r < p.m ? n : 0;  // columns of this thread's row, if it has one

  float* const sums = reinterpret_cast<float*>(forward_memory);
  std::byte* next = reinterpret_cast<std::byte*>(forward_memory) + forward_sums_bytes(kLayer);
  const auto side = [&](Type type, int of_chunk) {
    std::byte* const from = next;
    next += at.bytes(of_chunk);
    return Values{at, from, type, of_chunk};
  };
  const auto of = [](Type type) { return kSingle ? type : kType; };
  Values x = side(of(p.x.type), kOfChunk);
  x.template copy<false>(p.x.at(r), here, false);
  Values residual = kAdd ? side(of(p.residual.type), kOfChunk) : x;
  if constexpr (kAdd) residual.template copy<false>(p.residual.at(r), here, false);
  copies_commit();
  const auto vector = [&](const Vec& v) {
    Values of_v = side(v.type, v.type == Type::f32 ? 32 : 16);
    of_v.template copy<true>(v.data, n, p.cached);
    return of_v;
  };
  const Values weight = p.weight.present ? vector(p.weight) : x;
  const Values bias = p.bias.present ? vector(p.bias) : x;
  copies_commit();
  if (p.warps > 1 && at.thread < 32 && at.lane >= p.warps) {
#pragma unroll
    for (int i = 0; i < (kLayer ? 3 : 1); ++i) sums[i * 32 + at.lane] = 0.0f;
  }
  // Asked for now, when there is time.
  const int plain = in_register(p.plain), round_xhat = in_register(p.round_xhat);

  // What is normalised: x, or s in its place.
  const auto s_values = [&](int c, bool single, float(&v)[kChunk]) {
    if constexpr (kAdd && kSingle) {
      const auto* const own = reinterpret_cast<const uint4*>(x.memory + at.of_run(c, kOfChunk)) + at.in_run * 2;
      values_of_halves(Type::f32, own[0], own[1], v);
    } else {
      x.values(c, single ? Type::f32 : x.type, v);
    }
  };

  copies_wait_but_last();
  __syncwarp();
  float part[P] = {}, total[1];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int column = at.first + c * kStep;
    float v[kChunk];
    if constexpr (!kAdd) {
      s_values(c, false, v);
    } else {
      float other[kChunk];
      x.values(c, x.type, v);
      residual.values(c, residual.type, other);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = Elements::residual_sum(v[i], other[i]);
      round8(kSingle ? p.s_type : kType, v);
      if constexpr (!kWhole) __syncwarp();  // all lanes have read what lies where s is put
      store_whole<kType>(kKept, x.memory + at.of_run(c, kOfChunk) + at.in_run * kOfChunk, v);
      if (p.s.present) {
        std::byte* const to = p.s.at(r);
        if constexpr (kWhole) {
          if (column < here) store_whole<kType>(p.s.type, to + column * bytes_each<kType>(p.s.type), v);
        } else {
          const int begin = column - at.in_run * kChunk;
          store_run(p.s.type, to + std::int64_t{begin} * bytes_each<kType>(p.s.type), here - begin,
                    residual.memory + at.of_run(c, kOfChunk), at.in_run, at.lanes, v);
        }
      }
    }
    const float sum = kLayer ? chunk_sum(v) : chunk_products(v, v);
    part[c] = column < here ? sum : 0.0f;
  }
  const auto n_float = static_cast<float>(n);
  forward_sums<1>(at, p.warps, part, sums, total);
  float mean = 0.0f, rstd;
  if constexpr (!kLayer) {
    rstd = spec::rms_rstd(total[0], n_float, p.eps);
  } else {
    const float first_mean = Scalar::div(total[0], n_float);
    float parts[2 * P] = {}, totals[2];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = at.first + c * kStep;
      float d[kChunk];
      s_values(c, false, d);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        d[i] = Elements::centred(d[i], first_mean);
        if constexpr (!kWhole) d[i] = column + i < here ? d[i] : 0.0f;  // missing elements are +0, not -mean
      }
      const float sum = chunk_sum(d), squares = chunk_products(d, d);
      parts[c] = column < here ? sum : 0.0f;
      parts[P + c] = column < here ? squares : 0.0f;
    }
    forward_sums<2>(at, p.warps, parts, sums + 32, totals);
    const auto found = spec::layer_statistics(first_mean, totals[0], totals[1], n_float, p.eps);
    mean = found.mean;
    rstd = found.rstd;
  }
  if (at.first == 0 && r < p.m) {
    if (p.mean != nullptr) p.mean[r] = mean;
    if (p.rstd != nullptr) p.rstd[r] = rstd;
  }
  if (!p.y.present) return;
  std::byte* const y = p.y.at(r);
  copies_wait_but(0);
  __syncwarp();
  // Twice, so that the usual operands need no choices.
  const auto emit = [&](auto usual) {
    constexpr bool kUsual = decltype(usual)::value;
    const auto values_of = [&](const Values& vector, int c, float(&v)[kChunk]) {
      vector.values(c, kUsual ? kType : vector.type, v);
    };
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = at.first + c * kStep;
      float v[kChunk], w[kChunk], b[kChunk];
      s_values(c, kUsual && kSingle, v);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        v[i] = Elements::normalised(kLayer ? Elements::centred(v[i], mean) : v[i], rstd);
      }
      if (!kLayer && !(kUsual && kSingle) && round_xhat != 0) round8(kSingle ? p.xhat_type : kType, v);
      if (kUsual || p.weight.present) {
        values_of(weight, c, w);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) w[i] = Elements::effective_weight(w[i], p.offset);
      } else {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) w[i] = spec::kNoWeight;
      }
      if (kUsual ? kLayer : p.bias.present) {
        values_of(bias, c, b);
        finish_output(w, b, v);
      } else {
        finish_output(w, v);
      }
      const Type type = kUsual ? kType : p.y.type;
      if constexpr (kWhole) {
        if (column < here) store_whole<kType>(type, y + column * bytes_each<kType>(type), v);
      } else {
        const int begin = column - at.in_run * kChunk;
        store_run(type, y + std::int64_t{begin} * bytes_each<kType>(type), here - begin,
                  x.memory + at.of_run(c, kOfChunk), at.in_run, at.lanes, v);
      }
    }
  };
  if (plain != 0) {
    emit(std::true_type{});
  } else {
    emit(std::false_type{});
  }
}

}  // namespace truenorm::cuda
