// The forward of rows that a thread block can hold: one row for each group of threads, C chunks of it in each thread.
//
// Narrow rows of a 16-bit type stay in registers, where they are many with two chunks of a row in each thread: what is
// done once a row, which is most of the work there, then serves as many rows of a warp as may be. Else:
// A row is copied to shared memory and stays there between its sums and its output, and so do weight and bias, which
// are under way meanwhile. So a thread needs few registers, and a multiprocessor has many rows in flight, each at
// another stage: memory is kept busy without loops, and without rows loaded ahead.
#pragma once

#include "cuda/device/dependent.cuh"
#include "cuda/device/weights.cuh"
#include "cuda/kernels/forward_operands.cuh"
#include "spec/norm.hpp"

namespace truenorm::cuda {

// xhat to y.
template <int K>
__device__ __forceinline__ void finish_output(const float (&w)[K], const float (&b)[K], float (&y)[K]) {
#pragma unroll
  for (int i = 0; i < K; ++i) y[i] = Elements::output(y[i], w[i], b[i]);
}
template <int K>
__device__ __forceinline__ void finish_output(const float (&w)[K], float (&y)[K]) {
#pragma unroll
  for (int i = 0; i < K; ++i) y[i] = Elements::output(y[i], w[i], spec::kNoAddend);
}

// V sums of a row at once, the same in every thread of the row. `shared` has 32 floats for each where a row has several
// warps: +0 where there is none. All threads of the thread block call.
template <int V, int C, Lie kLie, bool kNarrow>
__device__ __forceinline__ void forward_sums(const ForwardPlace<C, kLie, kNarrow>& at, int warps,
                                             float (&s)[V * padded(C)], float* shared, float (&out)[V]) {
  constexpr int P = padded(C);
  if constexpr (C == 1) {  // a row may have few lanes
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float one[1] = {s[v]};
      lane_trees<1>(one, at.lane, at.lanes);
      out[v] = one[0];
    }
  } else {
    // Lane l ends with block l mod P of sum l / P; or, of narrow rows, with a half in a block's place.
    lane_trees<V * P>(s, at.lane, kNarrow ? at.lanes : 32);
#pragma unroll
    for (int step = 1; step < P; step *= 2) s[0] = Scalar::add(s[0], from_lane_xor(s[0], step));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      out[v] = V == 1 ? s[0] : __shfl_sync(kAllLanes, s[0], v * P, kNarrow ? at.lanes : 32);
    }
  }
  if (!at.kPart && warps > 1) {
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

// Threads of a thread block at most, and thread blocks that a multiprocessor should hold: for the registers' sake, of
// which the compiler would take more than it needs. Many rows in flight are what LayerNorm's sums want most, and
// RMSNorm where a thread has four chunks; others are slower with fewer registers. Of FP32, and with a residual, shared
// memory holds fewer rows anyway.
template <Type kType, int C, bool kLayer, bool kAdd, bool kWhole, ForwardForm kForm>
struct ForwardBounds {
  static constexpr bool kSingle = kType == Type::f32;
  static constexpr bool kNarrow = is_narrow(kForm);
  static constexpr bool kMany = kWhole && !kSingle && !kAdd && (kLayer || C == 4);
  static constexpr bool kDirect = kForm == ForwardForm::kDirect;
  static constexpr int kThreads = kNarrow   ? kForwardNarrowThreads
                                  : kDirect ? kForwardDirectThreads
                                  : kMany   ? kForwardThreads
                                            : 1024;
  static constexpr int kBlocks = kNarrow && !kWhole ? 8
                                 : kNarrow          ? (kLayer && kForm == ForwardForm::kNarrowPlain ? 9 : 10)
                                 : kDirect || kMany ? 2
                                                    : 1;
};

template <Type kType, int C, bool kLayer, bool kAdd, bool kWhole, ForwardForm kForm>
__global__ void __launch_bounds__(ForwardBounds<kType, C, kLayer, kAdd, kWhole, kForm>::kThreads,
                                  ForwardBounds<kType, C, kLayer, kAdd, kWhole, kForm>::kBlocks)
    forward_kernel(const __grid_constant__ ForwardArgs p) {
  constexpr bool kPlain = kForm == ForwardForm::kNarrowPlain,
                 kDirect = kForm == ForwardForm::kDirect || (kWhole && kForm == ForwardForm::kNarrow);
  constexpr int P = padded(C);
  constexpr bool kSingle = kType == Type::f32;
  constexpr bool kNarrow = is_narrow(kForm);
  constexpr bool kInRegisters = kNarrow && kWhole;  // else rows and vectors come by way of shared memory
  constexpr int kOfChunk = kInRegisters ? 0 : kSingle ? 32 : 16;
  static_assert(!(kNarrow && kSingle) && (kWhole || kForm == ForwardForm::kGeneral || kForm == ForwardForm::kNarrow));
  constexpr Lie kLie = lie_of<kType, kWhole>();
  using Matrix = Side<kType, C, kLie, false, kNarrow>;
  using Vector = Side<kType, C, kLie, true, kNarrow>;
  begin_kernel(p.early, p.n, p.weight, p.bias);
  const ForwardPlace<C, kLie, kNarrow> at(p);
  const int n = p.n;
  constexpr bool kTurns = kNarrow ? !kWhole : C == 1;  // others have no registers for them
  const int turns = kTurns ? p.turns : 1;
  unsigned int r = blockIdx.x * turns * p.rows + at.row;
  const auto columns_of = [&](unsigned int row) { return row < p.m ? n : 0; };

  float* const sums = reinterpret_cast<float*>(forward_shared());
  int next = static_cast<int>(forward_sums_bytes(kLayer));
  const auto take = [&](int each, int spare = 0) {
    const int from = next + at.run_at(each, spare);
    next += at.bytes(each, spare);
    return from;
  };
  constexpr int kSpare = kLie == Lie::kPieces ? kSparePieces : 0;
  Matrix x{at, take(kOfChunk, kSpare)}, residual{at, take(kAdd ? kOfChunk : 0, kSpare)};
  // Rows of all turns are under way together.
  const int of_turn = at.bytes(kOfChunk, kSpare) * (kAdd ? 2 : 1);
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    const unsigned int row = r + turn * p.rows;
    x.template copy<false>(p.x.type, p.x.at(row), columns_of(row));
    if constexpr (kAdd) residual.template copy<false>(p.residual.type, p.residual.at(row), columns_of(row));
    x.place += of_turn;
    residual.place += of_turn;
  }
  x.place -= turns * of_turn;
  residual.place -= turns * of_turn;
  next += (turns - 1) * of_turn;
  if constexpr (!kInRegisters) copies_commit();
  // Asked for now, when there is time.
  const int plain = kPlain ? 1 : in_register(p.plain), round_xhat = in_register(p.round_xhat);
  const int offset = in_register(p.offset != 0.0f);  // -0 changes nothing
  const auto vector = [&](const Vec& v, bool usual) {
    const bool wanted = kPlain ? usual : v.present && p.y.present;
    const Type type = kPlain ? kType : v.type;
    if constexpr (kDirect) {
      return DirectVector<C, kNarrow>{at, v.data, n};
    } else if constexpr (kInRegisters) {
      Vector of_v{at};
      if (wanted) of_v.template copy<true>(type, v.data, n);
      return of_v;
    } else {
      Vector of_v{at, take(wanted ? Vector::each(type) : 0)};
      if (wanted && p.cached) of_v.template copy<true>(type, v.data, n);
      if (wanted && !p.cached) of_v.template copy<false>(type, v.data, n);
      return of_v;
    }
  };
  const auto weight = vector(p.weight, true), bias = vector(p.bias, kLayer);
  if constexpr (!kInRegisters) copies_commit();
  if (!at.kPart && p.warps > 1 && at.thread < 32 && at.lane >= p.warps) {
#pragma unroll
    for (int i = 0; i < (kLayer ? 3 : 1); ++i) sums[i * 32 + at.lane] = 0.0f;
  }
  // What is normalised: x, or s in its place.
  const auto s_values = [&](int c, bool single, float(&v)[kChunk]) {
    if constexpr (kAdd && kSingle) {
      const auto* const own = reinterpret_cast<const uint4*>(x.run_of(c, kType)) + at.in_run * 2;
      values_of_halves(Type::f32, own[0], own[1], v);
    } else {
      x.values(c, single ? Type::f32 : p.x.type, v);
    }
  };

  if constexpr (!kInRegisters) {
    copies_wait_but_last();
    __syncwarp();
  }
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn, r += p.rows, x.place += of_turn, residual.place += of_turn) {
    const int here = columns_of(r);  // of this thread's row, if it has one
    if constexpr (!kWhole) {
      x.found_at(p.x.at(r));
      if constexpr (kAdd) residual.found_at(p.residual.at(r));
    }
    float part[P] = {}, total[1];
    PieceStore s_pieces(kAdd && p.s.present ? p.s.at(r) : nullptr, here, at.in_run, at.lanes);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int column = at.column(c);
      float v[kChunk];
      if constexpr (!kAdd) {
        s_values(c, false, v);
      } else {
        float other[kChunk];
        x.values(c, p.x.type, v);
        residual.values(c, p.residual.type, other);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) v[i] = Elements::residual_sum(v[i], other[i]);
        round8(kSingle ? p.s_type : kType, v);
        if constexpr (kLie == Lie::kWords) __syncwarp();  // all lanes have read what lies where s is put
        x.keep(c, v);
        if (p.s.present) {
          std::byte* const to = p.s.at(r);
          if constexpr (kWhole) {
            at.template store<kType>(p.s.type, to, column, here, v);
          } else if constexpr (kLie == Lie::kPieces) {
            s_pieces.store(x.low[c], column, c == 0, c == C - 1);
          } else {
            const int begin = column - at.in_run * kChunk;
            store_run(p.s.type, to + std::int64_t{begin} * bytes_each<kType>(p.s.type), here - begin,
                      residual.run_of(c, kType), at.in_run, at.lanes, v);
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
        const int column = at.column(c);
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
    if (!kPlain && !p.y.present) continue;
    std::byte* const y = p.y.at(r);
    if constexpr (!kInRegisters) {
      copies_wait_but(0);
      __syncwarp();
    }
    // Twice, so that the usual operands need no choices.
    const auto emit = [&](auto usual) {
      constexpr bool kUsual = decltype(usual)::value;
      PieceStore pieces(y, here, at.in_run, at.lanes);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int column = at.column(c);
        float v[kChunk], w[kChunk], b[kChunk];
        s_values(c, kUsual && kSingle, v);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          v[i] = Elements::normalised(kLayer ? Elements::centred(v[i], mean) : v[i], rstd);
        }
        if (!kLayer && !(kUsual && kSingle) && round_xhat != 0) round8(kSingle ? p.xhat_type : kType, v);
        if (kUsual || p.weight.present) {
          weight.values(c, kUsual ? kType : p.weight.type, w);
          if (offset != 0) {
#pragma unroll
            for (int i = 0; i < kChunk; ++i) w[i] = Elements::effective_weight(w[i], p.offset);
          }
        } else {
#pragma unroll
          for (int i = 0; i < kChunk; ++i) w[i] = spec::kNoWeight;
        }
        if (kUsual ? kLayer : p.bias.present) {
          bias.values(c, kUsual ? kType : p.bias.type, b);
          finish_output(w, b, v);
        } else {
          finish_output(w, v);
        }
        const Type type = kUsual ? kType : p.y.type;
        if constexpr (kWhole) {
          at.template store<kType>(type, y, column, here, v);
        } else if constexpr (kLie == Lie::kPieces) {
          pieces.store(narrow8(kType, v), column, c == 0, c == C - 1);
        } else {
          const int begin = column - at.in_run * kChunk;
          store_run(type, y + std::int64_t{begin} * bytes_each<kType>(type), here - begin, x.run_of(c, kType),
                    at.in_run, at.lanes, v);
        }
      }
    };
    if (plain != 0) {
      if constexpr (kSingle && kWhole) {
        // FP32 by halves of chunks, which neighbouring lanes have side by side, so that they store whole sectors
        // together. Vectors are asked for ahead of the stores before their use: loads do not pass those by themselves.
        constexpr int kHalves = 2 * C, kAhead = kDirect ? 1 : 0;
        float w[kAhead + 1][4], b[kAhead + 1][4];
        const auto ask = [&](int half) {
          weight.half_values(half / 2, half % 2, w[half % (kAhead + 1)]);
          if constexpr (kLayer) bias.half_values(half / 2, half % 2, b[half % (kAhead + 1)]);
        };
#pragma unroll
        for (int half = 0; half < kAhead; ++half) ask(half);
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const int c = half / 2, h = half % 2, column = at.half_column(c, h), now = half % (kAhead + 1);
          if (c > 0 && h == 0) __syncwarp();  // else all chunks are asked for at once: there are no registers for that
          if (half + kAhead < kHalves) ask(half + kAhead);
          float v[4];
          x.half_values(c, h, v);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            v[i] = Elements::normalised(kLayer ? Elements::centred(v[i], mean) : v[i], rstd);
            if (offset != 0) w[now][i] = Elements::effective_weight(w[now][i], p.offset);
          }
          if constexpr (kLayer) {
            finish_output(w[now], b[now], v);
          } else {
            finish_output(w[now], v);
          }
          if (column < here) reinterpret_cast<float4*>(y)[column / 4] = make_float4(v[0], v[1], v[2], v[3]);
        }
      } else {
        emit(std::true_type{});
      }
    } else {
      emit(std::false_type{});
    }
  }
}

}  // namespace truenorm::cuda
