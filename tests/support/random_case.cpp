#include "support/random_case.hpp"

#include <algorithm>
#include <iterator>

#include "support/call.hpp"

namespace truenorm::test {

namespace {

tn_dtype random_type(Rng& rng) { return static_cast<tn_dtype>(rng.between(TN_F32, TN_BF16)); }

// The matrices' types: the one asked for; else all of one in half of the calls, as kernels have paths of their own for
// these, and any mix in the others.
class MatrixTypes {
 public:
  MatrixTypes(Rng& rng, tn_dtype wanted)
      : rng_(rng),
        one_(wanted == TN_DTYPE_NONE ? random_type(rng) : wanted),
        mixed_(rng.chance(0.5) && wanted == TN_DTYPE_NONE) {}
  tn_dtype next() { return mixed_ ? random_type(rng_) : one_; }
  // A vector's: that of the matrices more often than others, again for paths of their own.
  tn_dtype vector() { return !mixed_ && rng_.chance(0.5) ? one_ : random_type(rng_); }

 private:
  Rng& rng_;
  tn_dtype one_;
  bool mixed_;
};

float random_offset(Rng& rng) {
  constexpr float kOffsets[] = {0.0f, 0.0f, 1.0f, 1.0f, -0.0f, 0.5f, -1.0f};
  return kOffsets[rng.below(std::ssize(kOffsets))];
}

tn_tensor random_matrix(Rng& rng, Arena& arena, tn_dtype type, Size size) {
  const tn_tensor t = arena.matrix(type, size.m, size.n);
  fill_any(t, rng);
  return t;
}

tn_tensor random_vector(Rng& rng, Arena& arena, tn_dtype type, std::int64_t n) {
  const tn_tensor t = arena.vector(type, n);
  fill_any(t, rng);
  return t;
}

std::int64_t near(Rng& rng, std::int64_t n) { return std::max<std::int64_t>(1, n + rng.between(-3, 3)); }

// Copies of a call's operands, and outputs that may take the place of one.
class Copies {
 public:
  Copies(Rng& rng, Arena& arena, Variation options) : rng_(rng), arena_(arena), options_(options) {}

  tn_tensor copy(const tn_tensor& t, bool vector) {
    if (absent(t)) return t;
    const tn_tensor copied = make(t, vector);
    write_bits(copied, read_bits(t));
    return copied;
  }

  // `over` is an input's copy that the output may replace.
  struct Place {
    tn_tensor* over;
    std::uint32_t flag;
  };
  tn_tensor output(const tn_tensor& t, bool vector, std::initializer_list<Place> places, std::uint32_t& flags) {
    if (absent(t)) return t;
    tn_tensor made{};
    for (const Place& place : places) {
      const tn_tensor& input = *place.over;
      if (made.data != nullptr || !options_.may_be_in_place || input.dtype != t.dtype || !rng_.chance(0.25)) continue;
      if (std::find(taken_.begin(), taken_.end(), input.data) != taken_.end()) continue;
      made = input;
      taken_.push_back(input.data);
      flags |= place.flag;
    }
    if (made.data == nullptr) made = make(t, vector);
    arena_.allow(made);
    return made;
  }

  // Makes some of the outputs absent, at least one being left.
  void drop(std::initializer_list<tn_tensor*> outputs) {
    if (!options_.may_drop_outputs || !rng_.chance(0.5)) return;
    std::int64_t left = std::count_if(outputs.begin(), outputs.end(), [](const tn_tensor* t) { return !absent(*t); });
    for (tn_tensor* t : outputs) {
      if (absent(*t) || left == 1 || !rng_.chance(0.5)) continue;
      *t = {};
      --left;
    }
  }

 private:
  tn_tensor make(const tn_tensor& t, bool vector) {
    const std::int64_t n = columns_of(t);
    if (!options_.may_move) return vector ? arena_.vector(t.dtype, n) : arena_.matrix(t.dtype, rows_of(t), n);
    if (vector) return arena_.vector(t.dtype, n, rng_.below(20));
    return arena_.matrix(t.dtype, random_layout(rng_, rows_of(t), n), n);
  }

  Rng& rng_;
  Arena& arena_;
  Variation options_;
  std::vector<void*> taken_;
};

}  // namespace

Size random_size(Rng& rng) {
  const double kind = rng.uniform();
  if (kind < 0.35) return {rng.between(0, 6), rng.between(1, 70)};
  if (kind < 0.55) return {rng.between(1, 5), near(rng, 256 * rng.between(1, 5))};
  if (kind < 0.70) return {rng.between(1, 4), rng.between(1, 3000)};
  if (kind < 0.78) return {rng.between(1, 2), near(rng, 4096)};
  if (kind < 0.80) return {1, rng.between(5000, 20000)};
  if (kind < 0.88) return {rng.between(100, 1100), rng.between(1, 60)};
  if (kind < 0.95) return {rng.between(20, 70), rng.between(600, 1500)};  // several tasks for a pool
  if (kind < 0.98) return {rng.between(8192, 9000), rng.between(1, 4)};   // strips of two rows
  if (kind < 0.985) return {rng.between(257, 262), rng.between(1025, 1100)};
  if (kind < 0.99) return {rng.between(129, 140), rng.between(2049, 2100)};
  return {rng.between(65, 67), near(rng, 4100)};
}

tn_forward_args random_forward(Rng& rng, Arena& arena, Size size, tn_dtype matrices) {
  constexpr float kEps[] = {1e-6f, 1e-6f, 1e-5f, 1e-12f, 1.0f, 0.0f};
  tn_forward_args a = forward_args(rng.chance(0.5) ? TN_RMS_NORM : TN_LAYER_NORM);
  const bool layer = a.op == TN_LAYER_NORM;
  a.rounding = !layer && rng.chance(0.5) ? TN_ROUND_LLAMA : TN_ROUND_ONCE;
  a.eps = kEps[rng.below(std::ssize(kEps))];
  a.offset = random_offset(rng);
  MatrixTypes types(rng, matrices);
  a.x = random_matrix(rng, arena, types.next(), size);
  if (rng.chance(0.5)) a.residual = random_matrix(rng, arena, types.next(), size);
  if (rng.chance(0.8)) a.weight = random_vector(rng, arena, types.vector(), size.n);
  if (rng.chance(0.4)) a.bias = random_vector(rng, arena, types.vector(), size.n);
  a.y = arena.matrix(types.next(), size.m, size.n);
  if (!absent(a.residual) && rng.chance(0.7)) a.residual_out = arena.matrix(types.next(), size.m, size.n);
  if (layer) a.mean = arena.vector(TN_F32, size.m);
  a.rstd = arena.vector(TN_F32, size.m);
  return a;
}

tn_backward_args random_backward(Rng& rng, Arena& arena, Size size, tn_dtype matrices) {
  tn_forward_args f = forward_args(rng.chance(0.5) ? TN_RMS_NORM : TN_LAYER_NORM);
  const bool layer = f.op == TN_LAYER_NORM;
  MatrixTypes types(rng, matrices);
  f.x = random_matrix(rng, arena, types.next(), size);
  if (layer) f.mean = arena.vector(TN_F32, size.m);
  f.rstd = arena.vector(TN_F32, size.m);
  const ForwardBits saved = model_forward(f);
  write_bits(f.rstd, saved.rstd);
  if (layer) write_bits(f.mean, saved.mean);

  tn_backward_args a = backward_args(f.op);
  a.rounding = !layer && rng.chance(0.5) ? TN_ROUND_LLAMA : TN_ROUND_ONCE;
  a.x_dtype = rng.chance(0.5) ? TN_DTYPE_NONE : random_type(rng);
  a.offset = random_offset(rng);
  const bool has_dy = rng.chance(0.92);
  if (has_dy) {
    a.dy = random_matrix(rng, arena, types.next(), size);
    a.s = f.x;
    a.mean = f.mean;
    a.rstd = f.rstd;
  }
  if (!has_dy || rng.chance(0.4)) a.ds = random_matrix(rng, arena, types.next(), size);
  if (rng.chance(0.8)) a.weight = random_vector(rng, arena, types.vector(), size.n);
  a.dx = arena.matrix(types.next(), size.m, size.n);
  if (rng.chance(0.4)) a.dresidual = arena.matrix(types.next(), size.m, size.n);
  if (!absent(a.weight)) a.dweight = arena.vector(random_type(rng), size.n);
  if (rng.chance(0.5)) a.dbias = arena.vector(random_type(rng), size.n);
  return a;
}

tn_forward_args vary(const tn_forward_args& args, Rng& rng, Arena& arena, Variation options) {
  tn_forward_args a = args;
  Copies copies(rng, arena, options);
  copies.drop({&a.y, &a.mean, &a.rstd});
  // Where its type is the residual's, s is the same whether it is asked for or not.
  if (a.residual_out.dtype == a.residual.dtype && !absent(a.y)) copies.drop({&a.y, &a.residual_out});
  a.x = copies.copy(a.x, false);
  a.residual = copies.copy(a.residual, false);
  a.weight = copies.copy(a.weight, true);
  a.bias = copies.copy(a.bias, true);
  a.y = copies.output(a.y, false, {{&a.x, TN_Y_OVER_X}, {&a.residual, TN_Y_OVER_RESIDUAL}}, a.in_place);
  a.residual_out =
      copies.output(a.residual_out, false,
                    {{&a.residual, TN_RESIDUAL_OUT_OVER_RESIDUAL}, {&a.x, TN_RESIDUAL_OUT_OVER_X}}, a.in_place);
  a.mean = copies.output(a.mean, true, {}, a.in_place);
  a.rstd = copies.output(a.rstd, true, {}, a.in_place);
  return a;
}

tn_backward_args vary(const tn_backward_args& args, Rng& rng, Arena& arena, Variation options) {
  tn_backward_args a = args;
  Copies copies(rng, arena, options);
  copies.drop({&a.dx, &a.dresidual, &a.dweight, &a.dbias});
  a.dy = copies.copy(a.dy, false);
  a.ds = copies.copy(a.ds, false);
  a.s = copies.copy(a.s, false);
  a.weight = copies.copy(a.weight, true);
  a.mean = copies.copy(a.mean, true);
  a.rstd = copies.copy(a.rstd, true);
  a.dx = copies.output(a.dx, false, {{&a.dy, TN_DX_OVER_DY}, {&a.ds, TN_DX_OVER_DS}, {&a.s, TN_DX_OVER_X}}, a.in_place);
  a.dresidual = copies.output(a.dresidual, false, {{&a.ds, TN_DRESIDUAL_OVER_DS}}, a.in_place);
  a.dweight = copies.output(a.dweight, true, {}, a.in_place);
  a.dbias = copies.output(a.dbias, true, {}, a.in_place);
  return a;
}

}  // namespace truenorm::test
