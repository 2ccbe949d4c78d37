// Faults of published libraries that a device can have: few rows, alignment, values, scratch. What a CPU can have as
// well, and so has cases for, runs on the device too (cpu_cases.cpp); `check` runs calls here and expects the model's
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cuda/check.hpp"
#include "cuda/device.hpp"
#include "cuda/problem.hpp"

namespace truenorm::test {
namespace {

int multiprocessors() {
  int count = 0;
  require(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

// ---- Fewer rows than multiprocessors, and about as many

class CudaCases_Rows : public testing::TestWithParam<std::int64_t> {};

TEST_P(CudaCases_Rows, AroundTheNumberOfMultiprocessors) {
  TN_NEEDS_CUDA();
  const std::int64_t n = GetParam();
  const std::int64_t sms = multiprocessors();
  for (const std::int64_t m : {sms / 2, sms - 1, sms, sms + 1, 2 * sms - 1, 2 * sms + 1, std::int64_t{1025}}) {
    if (m * n > (3 << 20)) continue;
    SCOPED_TRACE(testing::Message() << m << " x " << n);
    Problem(m % 2 == 0 ? TN_RMS_NORM : TN_LAYER_NORM, {m, n}, TN_BF16, 30).check_on_device();
  }
}
INSTANTIATE_TEST_SUITE_P(N, CudaCases_Rows, testing::Values(48, 300, 768, 2048, 4096, 8192, 12288, 18432));

// ---- One operand off alignment, all others on it

struct Place {
  const char* name;
  std::int64_t offset;  // elements
  std::int64_t gap;     // between rows
};
constexpr Place kPlaces[] = {{"one element off", 1, 0}, {"eight bytes off", 4, 0}, {"rows eight bytes off", 0, 4}};

template <class Args>
using Operand = tn_tensor Args::*;

template <class Args>
void each_off_alignment(const Args& args, const std::vector<Operand<Args>>& inputs,
                        const std::vector<Operand<Args>>& outputs) {
  std::vector<Operand<Args>> all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  for (std::size_t off = 0; off < all.size(); ++off) {
    for (const Place& place : kPlaces) {
      SCOPED_TRACE(testing::Message() << "operand " << off << ": " << place.name);
      const bool vector = (args.*all[off]).ndim == 1;
      if (absent(args.*all[off]) || (vector && place.offset == 0)) continue;
      Arena arena;
      Args moved = args;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const tn_tensor& from = args.*all[i];
        if (absent(from)) continue;
        tn_tensor& to = moved.*all[i];
        const Place here = i == off ? place : Place{};
        if (from.ndim == 1) {
          to = arena.vector(from.dtype, columns_of(from), here.offset);
        } else {
          const std::int64_t m = rows_of(from), n = columns_of(from);
          to = arena.matrix(from.dtype, {2, 1, m, 0, n + here.gap, here.offset}, n);
        }
        if (i < inputs.size()) write_bits(to, read_bits(from));
      }
      check(arena, moved);
    }
  }
}

class CudaCases_Alignment : public testing::TestWithParam<Size> {
 protected:
  Arena arena;
  Rng rng{31};
  std::int64_t m = GetParam().m, n = GetParam().n;

  tn_tensor normal() {
    const tn_tensor t = arena.matrix(TN_BF16, m, n);
    fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor normal_vector(tn_dtype type, std::int64_t size) {
    const tn_tensor t = arena.vector(type, size);
    fill(t, rng, Fill::normal);
    return t;
  }
};

TEST_P(CudaCases_Alignment, ForwardWithOneOperandOff) {
  TN_NEEDS_CUDA();
  using A = tn_forward_args;
  A f = forward_args(TN_RMS_NORM);
  f.x = normal();
  f.residual = normal();
  f.weight = normal_vector(TN_BF16, n);
  f.bias = normal_vector(TN_BF16, n);
  f.y = arena.matrix(TN_BF16, m, n);
  f.residual_out = arena.matrix(TN_BF16, m, n);
  f.rstd = arena.vector(TN_F32, m);
  each_off_alignment<A>(f, {&A::x, &A::residual, &A::weight, &A::bias}, {&A::y, &A::residual_out, &A::rstd});
}

TEST_P(CudaCases_Alignment, BackwardWithOneOperandOff) {
  TN_NEEDS_CUDA();
  using A = tn_backward_args;
  A b = backward_args(TN_LAYER_NORM);
  b.dy = normal();
  b.ds = normal();
  b.s = normal();
  b.weight = normal_vector(TN_BF16, n);
  b.mean = normal_vector(TN_F32, m);
  b.rstd = normal_vector(TN_F32, m);
  b.dx = arena.matrix(TN_BF16, m, n);
  b.dresidual = arena.matrix(TN_BF16, m, n);
  b.dweight = arena.vector(TN_F32, n);
  b.dbias = arena.vector(TN_F32, n);
  each_off_alignment<A>(b, {&A::dy, &A::ds, &A::s, &A::weight, &A::mean, &A::rstd},
                        {&A::dx, &A::dresidual, &A::dweight, &A::dbias});
}
INSTANTIATE_TEST_SUITE_P(Size, CudaCases_Alignment,
                         testing::Values(Size{2100, 128}, Size{300, 1024}, Size{33, 4096}, Size{260, 2048},
                                         Size{12, 16384}),
                         name_of_size);

// ---- A NaN or an infinity stays in its row, where several rows share a warp, a thread block or neither

class CudaCases_Values : public testing::TestWithParam<Size> {};

TEST_P(CudaCases_Values, NanAndInfStayInTheirRow) {
  TN_NEEDS_CUDA();
  const std::int64_t m = GetParam().m, n = GetParam().n;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::int64_t nan_row = m / 2, inf_row = m / 2 + 1;
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    Problem p(op, GetParam(), TN_BF16, 32);
    const tn_tensor x = p.forward_call.x;
    const Bits y = p.forward_bits.y, dx = p.backward_bits.dx;
    p.check_on_device();
    set_value(x, nan_row, n / 3, kNan);
    set_value(x, inf_row, n - 1, INFINITY);
    p.solve();
    p.check_on_device();
    const auto expect_others = [&](const tn_tensor& got, const Bits& clean) {
      for (std::int64_t r = 0; r < m; ++r) {
        const auto begin = clean.begin() + r * n;
        const bool same{equal_bits(row_view(got, r), Bits(begin, begin + n))};
        EXPECT_EQ(same, r != nan_row && r != inf_row) << "row " << r;
      }
    };
    expect_others(p.forward_call.y, y);
    expect_others(p.backward_call.dx, dx);
    EXPECT_TRUE(std::isnan(value_at(p.backward_call.dweight, 0, n / 3)));
  }
}
INSTANTIATE_TEST_SUITE_P(Size, CudaCases_Values,
                         testing::Values(Size{500, 24}, Size{2100, 128}, Size{300, 1024}, Size{30, 4096},
                                         Size{260, 2048}, Size{260, 8192}));

// ---- Scratch

constexpr Size kScratchSizes[] = {{5000, 128}, {600, 768},  {260, 2048}, {128, 4096},
                                  {300, 8192}, {66, 18432}, {1, 4096},   {700, 4097}};

TEST(CudaCases_Scratch, WhatItHoldsBeforehandDoesNotMatter) {
  TN_NEEDS_CUDA();
  for (const Size size : kScratchSizes) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto p = std::make_unique<Problem>(TN_LAYER_NORM, size, TN_BF16, 33);
    DeviceCopy copy(p->arena);
    const DeviceWorkspace workspace(p->backward_call);
    for (const int byte : {0x00, 0x3f, 0x7f, 0xff}) {  // zeros, ones, huge numbers, NaNs
      p->spoil_results();
      copy.upload();
      if (workspace.get().size > 0) require(cudaMemset(workspace.get().data, byte, workspace.get().size));
      require(cudaDeviceSynchronize());
      enqueue(copy.moved(p->forward_call));
      enqueue(copy.moved(p->backward_call), workspace);
      copy.download();
      p->expect_results();
      EXPECT_TRUE(workspace.left_well()) << "filled with " << byte;
    }
  }
}

// As a framework does that keeps the largest: calls of all sizes one after another, nothing cleared between them.
TEST(CudaCases_Scratch, OneForCallsOfAllSizes) {
  TN_NEEDS_CUDA();
  std::vector<std::unique_ptr<Problem>> problems;
  std::vector<std::unique_ptr<DeviceCopy>> copies;
  std::size_t data_size = 1, counters_size = 1;
  for (const Size size : kScratchSizes) {
    const auto& p = problems.emplace_back(std::make_unique<Problem>(TN_LAYER_NORM, size, TN_BF16, 34));
    copies.push_back(std::make_unique<DeviceCopy>(p->arena));
    const tn_workspace needed = DeviceWorkspace(p->backward_call).get();
    data_size = std::max(data_size, needed.size);
    counters_size = std::max(counters_size, needed.counters_size);
  }
  DeviceBytes data(data_size), counters(counters_size);
  data.fill(0xff);
  counters.fill(0);
  const tn_workspace workspace{data.data(), data_size, counters.data(), counters_size};
  const tn_exec exec = on_device();
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < problems.size(); ++i) {
      problems[i]->spoil_gradients();
      copies[i]->upload();
    }
    require(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::size_t k = round == 1 ? problems.size() - 1 - i : i;
      const tn_backward_args there = copies[k]->moved(problems[k]->backward_call);
      tn_error error;
      EXPECT_EQ(tn_backward(&exec, &there, &workspace, &error), TN_OK) << error.message;
    }
    for (std::size_t i = 0; i < problems.size(); ++i) {
      SCOPED_TRACE(testing::Message() << kScratchSizes[i].m << " x " << kScratchSizes[i].n << ", round " << round);
      copies[i]->download();
      expect_bits(problems[i]->backward_call, problems[i]->backward_bits);
    }
  }
}

TEST(CudaCases_Scratch, AFrozenWeightTakesNone) {
  TN_NEEDS_CUDA();
  for (const Size size : kScratchSizes) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto p = std::make_unique<Problem>(TN_RMS_NORM, size, TN_BF16, 35);
    tn_backward_args frozen = p->backward_call;
    frozen.dweight = frozen.dbias = {};
    const tn_exec exec = on_device();
    tn_workspace workspace{nullptr, 1, nullptr, 1};
    tn_error error;
    ASSERT_EQ(tn_backward_workspace(&exec, &frozen, &workspace, &error), TN_OK) << error.message;
    EXPECT_EQ(workspace.size, 0u);
    EXPECT_EQ(workspace.counters_size, 0u);
    p->spoil_gradients();
    DeviceCopy copy(p->arena);
    copy.upload();
    const tn_backward_args there = copy.moved(frozen);
    EXPECT_EQ(tn_backward(&exec, &there, nullptr, &error), TN_OK) << error.message;
    copy.download();
    expect_bits(frozen, p->backward_bits);
  }
}

}  // namespace
}  // namespace truenorm::test
