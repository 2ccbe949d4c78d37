// Faults of published libraries: values that are large, tiny, constant or not numbers. Right is what FP64 says of the
// very inputs; the bits are the model's, as everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

struct Exact {
  double mean;
  double rstd;
};

class Cases_Range : public testing::Test {
 protected:
  Arena arena;
  Rng rng{15};

  tn_forward_args norm(tn_op op, const tn_tensor& x, tn_dtype y_type) {
    const std::int64_t m = rows_of(x);
    tn_forward_args f = forward_args(op);
    f.x = x;
    f.y = arena.matrix(y_type, m, columns_of(x));
    f.rstd = arena.vector(TN_F32, m);
    if (op == TN_LAYER_NORM) f.mean = arena.vector(TN_F32, m);
    return f;
  }

  template <class Value>
  tn_tensor filled(tn_dtype type, std::int64_t m, std::int64_t n, const Value& value) {
    const tn_tensor t = arena.matrix(type, m, n);
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) set_value(t, r, c, static_cast<float>(value(r, c)));
    }
    return t;
  }

  static Exact exact(const tn_forward_args& f, std::int64_t r) {
    const std::int64_t n = columns_of(f.x);
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < n; ++c) sum += static_cast<double>(value_at(f.x, r, c));
    const double mean = f.op == TN_LAYER_NORM ? sum / static_cast<double>(n) : 0.0;
    for (std::int64_t c = 0; c < n; ++c) squares += std::pow(static_cast<double>(value_at(f.x, r, c)) - mean, 2);
    return {mean, 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(f.eps))};
  }

  // The statistics are right to FP32; y is within `units` of FP32 of the row's own scale, then rounded once.
  void expect_exact(const tn_forward_args& f) {
    check(arena, f);
    const double eps32 = 0x1p-23;
    for (std::int64_t r = 0; r < rows_of(f.x); ++r) {
      const Exact e = exact(f, r);
      EXPECT_NEAR(static_cast<double>(value_at(f.rstd, 0, r)) / e.rstd, 1.0, 2 * eps32) << "row " << r;
      if (f.op == TN_LAYER_NORM) {
        EXPECT_NEAR(static_cast<double>(value_at(f.mean, 0, r)), e.mean, std::abs(e.mean) * eps32) << "row " << r;
      }
    }
  }
};

TEST_F(Cases_Range, Fp16RowsOfHundredsAndThousands) {
  for (const double scale : {300.0, 8000.0}) {
    tn_forward_args f = norm(
        TN_RMS_NORM, filled(TN_F16, 3, 4096, [&](auto, auto) { return scale * (1 + 0.1 * rng.normal()); }), TN_F16);
    expect_exact(f);
    for (std::int64_t r = 0; r < 3; ++r) {
      const Exact e = exact(f, r);
      for (std::int64_t c = 0; c < 4096; ++c) {
        const double y = static_cast<double>(value_at(f.x, r, c)) * e.rstd;
        // Half a unit of FP16 at values of 1 and above is 2^-11; FP32's error is a 2^-22th.
        ASSERT_NEAR(static_cast<double>(value_at(f.y, r, c)), y, y * (0x1p-11 + 0x1p-21)) << scale;
      }
    }
  }
}

TEST_F(Cases_Range, ZeroRowsInFp16WithASmallEps) {
  tn_forward_args f = norm(TN_RMS_NORM, filled(TN_F16, 2, 300, [](auto, auto) { return 0.0; }), TN_F16);
  f.eps = 1e-12f;
  check(arena, f);
  EXPECT_TRUE(equal_bits(f.y, Bits(600, 0u)));
}

TEST_F(Cases_Range, ConstantRowsGiveTheBias) {
  for (const tn_dtype type : {TN_F32, TN_F16, TN_BF16}) {
    for (const std::int64_t n : {2, 300, 4099}) {
      tn_forward_args f =
          norm(TN_LAYER_NORM, filled(type, 3, n, [](auto r, auto) { return 0.1 + 37.0 * double(r); }), TN_F32);
      f.eps = 1e-12f;
      check(arena, f);
      EXPECT_TRUE(equal_bits(f.y, Bits(static_cast<std::size_t>(3 * n), 0u))) << n;
      f.bias = arena.vector(TN_F32, n);
      fill(f.bias, rng, Fill::normal);
      check(arena, f);
      for (std::int64_t r = 0; r < 3; ++r) EXPECT_TRUE(equal_bits(row_view(f.y, r), read_bits(f.bias))) << n;
    }
  }
}

TEST_F(Cases_Range, LayerNormOfALargeMean) {
  expect_exact(norm(TN_LAYER_NORM, filled(TN_F32, 8, 4096, [&](auto, auto) { return 2000 + rng.normal(); }), TN_F32));
}

TEST_F(Cases_Range, LayerNormOfASmallSpreadInWideRows) {
  expect_exact(
      norm(TN_LAYER_NORM, filled(TN_F32, 32, 32768, [&](auto, auto) { return 100 + 0.01 * rng.normal(); }), TN_F32));
}

TEST_F(Cases_Range, LayerNormOfSixteenCloseValues) {
  expect_exact(norm(TN_LAYER_NORM, filled(TN_F32, 1, 16, [](auto, auto c) { return 1e4 + double(c) * 1e-3; }), TN_F32));
}

TEST_F(Cases_Range, OneLargeValueAmongSmallOnes) {
  expect_exact(norm(TN_RMS_NORM, filled(TN_F32, 1, 3000, [](auto, auto c) { return c == 1234 ? 1e3 : 1e-2; }), TN_F32));
}

TEST_F(Cases_Range, EpsCountsExactly) {
  // Mean square 2e-4, eps 1e-6: an eps that were lost would show in the third digit.
  tn_forward_args f = norm(
      TN_RMS_NORM, filled(TN_F32, 1, 1000, [](auto, auto c) { return c % 2 == 0 ? 0.0141421 : -0.0141421; }), TN_F32);
  expect_exact(f);
  const float with_eps = value_at(f.rstd, 0, 0);
  f.eps = 0.0f;
  expect_exact(f);
  EXPECT_GT(value_at(f.rstd, 0, 0) / with_eps, 1.002f);
}

TEST_F(Cases_Range, NanAndInfStayInTheirRow) {
  for (const float intruder : {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY}) {
    for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
      tn_tensor x = filled(TN_BF16, 5, 700, [&](auto, auto) { return rng.normal(); });
      tn_forward_args f = norm(op, x, TN_BF16);
      check(arena, f);
      const Bits clean = read_bits(f.y);
      set_value(x, 2, 333, intruder);
      check(arena, f);
      for (std::int64_t r = 0; r < 5; ++r) {
        const auto begin = clean.begin() + r * 700;
        EXPECT_EQ(static_cast<bool>(equal_bits(row_view(f.y, r), Bits(begin, begin + 700))), r != 2) << r;
      }
      EXPECT_TRUE(std::isnan(value_at(f.y, 2, 333)));

      // Backward: dx of the other rows; the weight gradients carry it.
      tn_backward_args b = backward_args(op);
      b.dy = filled(TN_BF16, 5, 700, [&](auto, auto) { return rng.normal(); });
      b.s = x;
      b.mean = f.mean;
      b.rstd = f.rstd;
      b.dx = arena.matrix(TN_F32, 5, 700);
      b.weight = filled(TN_F32, 1, 700, [](auto, auto) { return 1.0; });
      b.weight = tn_vector(b.weight.data, TN_F32, 700);
      b.dweight = arena.vector(TN_F32, 700);
      check(arena, b);
      for (std::int64_t c = 0; c < 700; ++c) {
        for (const std::int64_t r : {0, 1, 3, 4}) ASSERT_TRUE(std::isfinite(value_at(b.dx, r, c)));
      }
      EXPECT_TRUE(std::isnan(value_at(b.dweight, 0, 333)));
    }
  }
}

// Infinity times the +0 that stands past a row's end would be no number.
TEST_F(Cases_Range, NothingPastARowsEndMeetsAnInfinity) {
  for (const std::int64_t n : {700, 1000, 1001, 20000, 20001, 30000, 30001}) {
    for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
      SCOPED_TRACE(testing::Message() << "N = " << n << ", operation " << op);
      const bool layer = op == TN_LAYER_NORM;
      const auto positive = [&](auto, auto) { return 1 + std::abs(rng.normal()); };
      tn_backward_args b = backward_args(op);
      b.dy = filled(TN_BF16, 3, n, positive);
      b.s = filled(TN_BF16, 3, n, positive);
      b.weight = arena.vector(TN_F32, n);
      b.rstd = arena.vector(TN_F32, 3);
      if (layer) b.mean = arena.vector(TN_F32, 3);
      for (std::int64_t c = 0; c < n; ++c) set_value(b.weight, 0, c, 1.0f);
      if (!layer) set_value(b.weight, 0, n - 1, INFINITY);
      for (std::int64_t r = 0; r < 3; ++r) {
        set_value(b.rstd, 0, r, 1.0f);
        if (layer) set_value(b.mean, 0, r, r == 1 ? 0.5f : INFINITY);
      }
      b.dx = arena.matrix(TN_BF16, 3, n);
      check(arena, b);
      EXPECT_EQ(value_at(b.dx, 0, 0), -INFINITY);
      EXPECT_EQ(std::isfinite(value_at(b.dx, 1, 0)), layer);
    }
  }
}

TEST_F(Cases_Range, LargeFp32Values) {
  expect_exact(norm(TN_RMS_NORM, filled(TN_F32, 2, 500, [](auto, auto) { return 7e9; }), TN_F32));
  // Squares overflow: rstd is 0, and so is y.
  tn_forward_args f = norm(TN_RMS_NORM, filled(TN_F32, 1, 500, [](auto, auto) { return 1e25; }), TN_F32);
  check(arena, f);
  EXPECT_EQ(value_at(f.rstd, 0, 0), 0.0f);
  EXPECT_TRUE(equal_bits(f.y, Bits(500, 0u)));
}

TEST_F(Cases_Range, SubnormalsAreKept) {
  tn_forward_args f =
      norm(TN_RMS_NORM, filled(TN_F32, 1, 64, [](auto, auto c) { return double(c) * 0x1p-149; }), TN_F32);
  f.eps = 1.0f;
  check(arena, f);
  EXPECT_TRUE(equal_bits(f.y, read_bits(f.x)));  // rstd is 1
  f.x = filled(TN_F16, 1, 64, [](auto, auto c) { return double(c) * 0x1p-24; });
  f.y = arena.matrix(TN_F16, 1, 64);
  check(arena, f);
  EXPECT_TRUE(equal_bits(f.y, read_bits(f.x)));
}

TEST_F(Cases_Range, EpsZero) {
  tn_forward_args f = norm(TN_RMS_NORM, filled(TN_F32, 1, 64, [](auto, auto) { return 2.0; }), TN_F32);
  f.eps = 0.0f;
  check(arena, f);
  EXPECT_EQ(value_at(f.y, 0, 0), 1.0f);
  f.x = filled(TN_F32, 1, 64, [](auto, auto) { return 0.0; });
  check(arena, f);
  EXPECT_TRUE(std::isinf(value_at(f.rstd, 0, 0)));
  EXPECT_TRUE(std::isnan(value_at(f.y, 0, 0)));
}

}  // namespace
}  // namespace truenorm::test
