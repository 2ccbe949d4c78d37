#include "support/model.hpp"

#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"

namespace truenorm::test {

namespace {

using Elements = spec::Elements<spec::Scalar>;
using Row = std::vector<float>;

Row load(const tn_tensor& t, std::int64_t row) {
  Row values(static_cast<std::size_t>(columns_of(t)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(t, row, static_cast<std::int64_t>(i));
  return values;
}

// Row `row`, or n times the value that stands for an absent operand.
Row load_or(const tn_tensor& t, std::int64_t row, std::size_t n, float otherwise) {
  return absent(t) ? Row(n, otherwise) : load(t, row);
}

Row effective_weight(const tn_tensor& weight, float offset, std::size_t n) {
  if (absent(weight)) return Row(n, spec::kNoWeight);
  Row w = load(weight, 0);
  for (float& v : w) v = Elements::effective_weight(v, spec::effective_offset(offset));
  return w;
}

// sum(a * b) over a row: blocks of kBlock, missing elements +0 in both; their sums in a tree.
float sum_of_products(Row a, Row b) {
  const std::size_t blocks = (a.size() + spec::kBlock - 1) / spec::kBlock;
  a.resize(blocks * spec::kBlock, 0.0f);
  b.resize(blocks * spec::kBlock, 0.0f);
  spec::TreeSum sum;
  for (std::size_t i = 0; i < a.size(); i += spec::kBlock) sum.push(spec::block_sum_of_products(&a[i], &b[i]));
  return sum.finish();
}
float sum_of_squares(const Row& a) { return sum_of_products(a, a); }
float sum_of(const Row& a) { return sum_of_products(a, Row(a.size(), 1.0f)); }

void append(Bits& bits, tn_dtype type, const Row& values) {
  for (const float v : values) bits.push_back(narrowed(type, v));
}

// The weight gradients: one accumulator row for each strip that has rows.
class Strips {
 public:
  Strips(std::int64_t m, std::int64_t n) : count_(spec::strips(n)) {
    const auto used = static_cast<std::size_t>(m < count_ ? m : count_);
    sums_.assign(used, Row(static_cast<std::size_t>(n), 0.0f));
  }

  Row& of_row(std::int64_t r) { return sums_[static_cast<std::size_t>(r % count_)]; }

  Row total(std::size_t n) const {
    Row result(n);
    for (std::size_t c = 0; c < n; ++c)
      result[c] = spec::Scalar::add(tree(0, static_cast<std::size_t>(count_), c), 0.0f);
    return result;
  }

 private:
  // The strips [first, first + count); those without rows are +0, and so is a tree of them.
  float tree(std::size_t first, std::size_t count, std::size_t column) const {
    if (first >= sums_.size()) return 0.0f;
    if (count == 1) return sums_[first][column];
    return spec::Scalar::add(tree(first, count / 2, column), tree(first + count / 2, count / 2, column));
  }

  std::int64_t count_;
  std::vector<Row> sums_;
};

}  // namespace

ForwardBits model_forward(const tn_forward_args& a) {
  ForwardBits out;
  const auto n = static_cast<std::size_t>(columns_of(a.x));
  const auto n_float = static_cast<float>(columns_of(a.x));
  const bool layer = a.op == TN_LAYER_NORM;
  const Row w = effective_weight(a.weight, a.offset, n);
  const Row bias = load_or(a.bias, 0, n, spec::kNoAddend);
  const tn_dtype s_type = !absent(a.residual_out) ? a.residual_out.dtype : a.residual.dtype;
  for (std::int64_t r = 0; r < rows_of(a.x); ++r) {
    Row s = load(a.x, r);
    if (!absent(a.residual)) {
      const Row residual = load(a.residual, r);
      for (std::size_t i = 0; i < n; ++i) {
        s[i] = widened(s_type, narrowed(s_type, Elements::residual_sum(s[i], residual[i])));
      }
    }
    if (!absent(a.residual_out)) append(out.residual_out, s_type, s);

    Row centred = s;
    float rstd = 0.0f;
    if (layer) {
      const float first_mean = spec::Scalar::div(sum_of(s), n_float);
      Row d(n);
      for (std::size_t i = 0; i < n; ++i) d[i] = Elements::centred(s[i], first_mean);
      const auto statistics = spec::layer_statistics(first_mean, sum_of(d), sum_of_squares(d), n_float, a.eps);
      rstd = statistics.rstd;
      for (std::size_t i = 0; i < n; ++i) centred[i] = Elements::centred(s[i], statistics.mean);
      if (!absent(a.mean)) append(out.mean, TN_F32, {statistics.mean});
    } else {
      rstd = spec::rms_rstd(sum_of_squares(s), n_float, a.eps);
    }
    if (!absent(a.rstd)) append(out.rstd, TN_F32, {rstd});
    if (absent(a.y)) continue;

    Row y(n);
    for (std::size_t i = 0; i < n; ++i) {
      float xhat = Elements::normalised(centred[i], rstd);
      if (a.rounding == TN_ROUND_LLAMA) xhat = widened(a.x.dtype, narrowed(a.x.dtype, xhat));
      y[i] = Elements::output(xhat, w[i], bias[i]);
    }
    append(out.y, a.y.dtype, y);
  }
  return out;
}

BackwardBits model_backward(const tn_backward_args& a) {
  BackwardBits out;
  const bool has_dy = !absent(a.dy);
  const tn_tensor& first = has_dy ? a.dy : a.ds;
  const std::int64_t m = rows_of(first);
  const auto n = static_cast<std::size_t>(columns_of(first));
  const auto n_float = static_cast<float>(columns_of(first));
  const bool layer = a.op == TN_LAYER_NORM;
  const tn_dtype x_type = a.x_dtype != TN_DTYPE_NONE ? a.x_dtype : a.s.dtype;
  const Row w = effective_weight(a.weight, a.offset, n);
  Strips dweight(m, columns_of(first)), dbias(m, columns_of(first));

  for (std::int64_t r = 0; r < m; ++r) {
    Row gradient = load_or(a.ds, r, n, spec::kNoAddend);  // without dy, ds itself
    if (has_dy) {
      const Row dy = load(a.dy, r);
      Row centred = load(a.s, r);
      const float rstd = value_at(a.rstd, 0, r);
      if (layer) {
        for (float& v : centred) v = Elements::centred(v, value_at(a.mean, 0, r));
      }
      Row product(n);
      for (std::size_t i = 0; i < n; ++i) product[i] = Elements::product(dy[i], centred[i]);

      for (std::size_t i = 0; i < n; ++i) {
        float& dw = dweight.of_row(r)[i];
        if (a.rounding == TN_ROUND_LLAMA && x_type != TN_F32) {
          const float xhat = Elements::normalised(centred[i], rstd);
          dw = Elements::grad_weight_llama(dw, dy[i], widened(x_type, narrowed(x_type, xhat)));
        } else {
          dw = Elements::grad_weight(dw, product[i], rstd);
        }
        float& db = dbias.of_row(r)[i];
        db = Elements::grad_bias(db, dy[i]);
      }

      const float minus_slope = spec::minus_slope_of(sum_of_products(product, w), n_float, rstd);
      const float shift = layer ? spec::shift_of(sum_of_products(dy, w), n_float) : 0.0f;
      for (std::size_t i = 0; i < n; ++i) {
        float& g = gradient[i];
        g = layer ? Elements::grad_layer(dy[i], w[i], centred[i], minus_slope, shift, rstd, g)
                  : Elements::grad_rms(dy[i], w[i], centred[i], minus_slope, rstd, g);
      }
    }
    if (!absent(a.dx)) append(out.dx, a.dx.dtype, gradient);
    if (!absent(a.dresidual)) append(out.dresidual, a.dresidual.dtype, gradient);
  }
  if (!absent(a.dweight)) append(out.dweight, a.dweight.dtype, dweight.total(n));
  if (!absent(a.dbias)) append(out.dbias, a.dbias.dtype, dbias.total(n));
  return out;
}

}  // namespace truenorm::test
