#include "cuda/problem.hpp"

#include "cuda/check.hpp"
#include "cuda/device.hpp"

namespace truenorm::test {

Problem::Problem(tn_op op, Size size, tn_dtype type, std::uint64_t seed)
    : forward_call(forward_args(op)), backward_call(backward_args(op)) {
  Rng rng(seed);
  const auto [m, n] = size;
  tn_forward_args& f = forward_call;
  f.x = arena.matrix(type, m, n);
  f.residual = arena.matrix(type, m, n);
  f.weight = arena.vector(type, n);
  f.bias = arena.vector(type, n);
  f.y = arena.matrix(type, m, n);
  f.residual_out = arena.matrix(type, m, n);
  f.rstd = arena.vector(TN_F32, m);
  if (op == TN_LAYER_NORM) f.mean = arena.vector(TN_F32, m);
  tn_backward_args& b = backward_call;
  b.dy = arena.matrix(type, m, n);
  b.ds = arena.matrix(type, m, n);
  b.s = f.residual_out;
  b.weight = f.weight;
  b.mean = f.mean;
  b.rstd = f.rstd;
  b.dx = arena.matrix(type, m, n);
  b.dresidual = arena.matrix(type, m, n);
  b.dweight = arena.vector(TN_F32, n);
  b.dbias = arena.vector(TN_F32, n);
  for (const tn_tensor& t : {f.x, f.residual, f.weight, f.bias, b.dy, b.ds}) fill(t, rng, Fill::normal);
  for (const tn_tensor& t : {f.y, f.residual_out, f.rstd, f.mean, b.dx, b.dresidual, b.dweight, b.dbias}) {
    if (!absent(t)) arena.allow(t);
  }
  solve();
}

void Problem::solve() {
  forward_bits = on_cpu(forward_call);
  backward_bits = on_cpu(backward_call);
}

void Problem::spoil_results() const {
  spoil_outputs(forward_call);
  spoil_gradients();
}

void Problem::expect_results() const {
  expect_bits(forward_call, forward_bits);
  expect_bits(backward_call, backward_bits);
}

void Problem::check_on_device() {
  spoil_results();
  check_call(arena, forward_call, forward_bits);
  check_call(arena, backward_call, backward_bits);
}

}  // namespace truenorm::test
