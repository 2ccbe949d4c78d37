// The usual calls of every operation, dense and apart, of each size that brings another kernel: their bits are the
// CPU's. What is unusual is left to chance elsewhere (bits_test.cpp), which might miss one of these.
#include <gtest/gtest.h>

#include "cuda/check.hpp"
#include "cuda/device.hpp"
#include "spec/order.hpp"
#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {
namespace {

struct Usual {
  tn_op op;
  bool add;
  tn_dtype type, weight;  // of matrices; of weight, bias and their gradients
};

// A matrix of m rows with as many behind them, which nobody may write, as one row of each strip: kernels take rows of a
// strip together, of which the last may not be there.
tn_tensor guarded(Arena& arena, tn_dtype type, Size size) {
  tn_tensor t = arena.matrix(type, size.m + spec::strips(size.n), size.n);
  t.shape[0] = size.m;
  return t;
}

void check_usual(const Usual& of, Size size) {
  SCOPED_TRACE(testing::Message() << (of.add ? "add, " : "") << (of.op == TN_LAYER_NORM ? "layer norm" : "RMS norm")
                                  << " of " << tn_dtype_name(of.type) << ", weight " << tn_dtype_name(of.weight));
  const auto [m, n] = size;
  const bool layer = of.op == TN_LAYER_NORM;
  Rng rng(static_cast<std::uint64_t>(m * 31 + n));
  Arena arena;
  tn_forward_args f = forward_args(of.op);
  f.x = arena.matrix(of.type, m, n);
  if (of.add) f.residual = arena.matrix(of.type, m, n);
  if (of.add) f.residual_out = guarded(arena, of.type, size);
  f.weight = arena.vector(of.weight, n);
  if (layer) f.bias = arena.vector(of.weight, n);
  f.y = guarded(arena, of.type, size);
  if (layer) f.mean = arena.vector(TN_F32, m);
  f.rstd = arena.vector(TN_F32, m);
  fill_all({f.x, f.residual, f.weight, f.bias}, rng);
  check_outputs(arena, f, {f.y, f.residual_out, f.mean, f.rstd});

  Arena second;
  tn_backward_args b = backward_args(of.op);
  b.dy = second.matrix(of.type, m, n);
  if (of.add) b.ds = second.matrix(of.type, m, n);
  b.s = second.matrix(of.type, m, n);
  b.weight = second.vector(of.weight, n);
  if (layer) b.mean = second.vector(TN_F32, m);
  b.rstd = second.vector(TN_F32, m);
  b.dx = guarded(second, of.type, size);
  b.dweight = second.vector(of.weight, n);
  if (layer) b.dbias = second.vector(of.weight, n);
  fill_all({b.dy, b.ds, b.s, b.weight, b.mean, b.rstd}, rng);
  check_outputs(second, b, {b.dx, b.dweight, b.dbias});
}

class CudaUsual : public testing::TestWithParam<Size> {};

TEST_P(CudaUsual, Calls) {
  TN_NEEDS_CUDA();
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    for (const bool add : {false, true}) {
      for (const tn_dtype type : {TN_F32, TN_F16, TN_BF16}) {
        if (HasFailure()) return;
        check_usual({op, add, type, type}, GetParam());
        if (type == TN_BF16) check_usual({op, add, type, TN_F32}, GetParam());
      }
    }
  }
}

// Narrow rows, few and many; of every number of chunks a thread; teams of few warps; rows so long that vectors are read
// where they are; long rows. Each with fewer rows than go strip by strip, or more.
INSTANTIATE_TEST_SUITE_P(Size, CudaUsual,
                         testing::Values(Size{40000, 8}, Size{70000, 16}, Size{300, 64}, Size{12000, 96},
                                         Size{9000, 128}, Size{100, 128}, Size{1000, 136}, Size{5300, 200},
                                         Size{4200, 256}, Size{300, 512}, Size{300, 768}, Size{300, 1024},
                                         Size{700, 1000}, Size{300, 1536}, Size{300, 2048}, Size{300, 2304},
                                         Size{600, 2560}, Size{1, 4096}, Size{128, 4096}, Size{256, 4096},
                                         Size{300, 4096}, Size{300, 4104}, Size{270, 5120}, Size{140, 8192},
                                         Size{256, 8192}, Size{270, 8192}, Size{270, 12288}, Size{40, 18432},
                                         Size{270, 18432}, Size{270, 18440}, Size{3, 24576}, Size{60, 32768}),
                         name_of_size);

}  // namespace
}  // namespace truenorm::test
