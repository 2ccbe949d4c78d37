// Faults of published libraries: element counts and strides beyond 31 bits. Address space is plentiful, memory is not:
// views repeat a little memory over and over, or touch few of their pages. At most 3 GB are used (repeated pages count
// once for each place in what some tools call resident).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/call.hpp"
#include "support/mapping.hpp"

namespace truenorm::test {
namespace {

void write_row(const tn_tensor& t, std::int64_t r, Rng& rng) { fill(row_view(t, r), rng, Fill::normal); }

void expect_row(const tn_tensor& t, std::int64_t r, const Bits& expected) {
  EXPECT_TRUE(equal_bits(row_view(t, r), expected)) << "row " << r;
}

// ---- M * N > 2^31

constexpr std::int64_t kN = 4096;
constexpr std::int64_t kPeriodRows = 8192;  // 64 MiB of BF16
constexpr std::int64_t kRepeats = 65;
constexpr std::int64_t kTailRows = 3;
constexpr std::int64_t kRows = kPeriodRows * kRepeats + kTailRows;
static_assert(kRows * kN > std::int64_t{1} << 31);

struct Periodic {
  Mapping memory{kPeriodRows * kN * 2, kRepeats, kTailRows* kN * 2};
  tn_tensor all = tn_matrix(memory.data(), TN_BF16, kRows, kN);
  tn_tensor period = tn_matrix(memory.data(), TN_BF16, kPeriodRows, kN);
  tn_tensor tail = tn_matrix(row_at(all, kPeriodRows* kRepeats), TN_BF16, kTailRows, kN);
};

TEST(Cases_Sizes_Large, ForwardOfMoreThan31BitsOfElements) {
  Rng rng(20);
  Periodic x, y;
  for (std::int64_t r = 0; r < kPeriodRows; r += 511) write_row(x.period, r, rng);
  for (std::int64_t r = 0; r < kTailRows; ++r) write_row(x.tail, r, rng);
  std::vector<float> rstd(static_cast<std::size_t>(kRows), -1.0f);
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = x.all;
  f.y = y.all;
  f.rstd = tn_vector(rstd.data(), TN_F32, kRows);
  std::memset(y.memory.data(), 0xff, kPeriodRows * kN * 2);
  forward(f, on(TN_ISA_AUTO, shared_pool(2)));

  tn_forward_args part = f;
  for (const auto& [xs, ys, first] :
       {std::tuple{x.period, y.period, std::int64_t{0}}, std::tuple{x.tail, y.tail, kPeriodRows * kRepeats}}) {
    for (std::int64_t r = 0; r<rows_of(xs); r += rows_of(xs)> 100 ? 511 : 1) {
      part.x = row_view(xs, r);
      part.y = row_view(ys, r);
      part.rstd = tn_vector(&rstd[static_cast<std::size_t>(first + r)], TN_F32, 1);
      expect_bits(part, model_forward(part));
    }
  }
  for (std::int64_t r = 0; r < kPeriodRows * kRepeats; ++r) {
    ASSERT_EQ(rstd[static_cast<std::size_t>(r)], rstd[static_cast<std::size_t>(r % kPeriodRows)]) << r;
  }
}

TEST(Cases_Sizes_Large, BackwardOfMoreThan31BitsOfElements) {
  Rng rng(21);
  Periodic dy, s, dx;
  write_row(s.period, 1, rng);
  for (std::int64_t r = 0; r < kTailRows; ++r) write_row(s.tail, r, rng);
  write_row(dy.tail, kTailRows - 1, rng);  // the last row alone has a gradient, and so makes all of dweight
  std::vector<float> rstd(static_cast<std::size_t>(kRows), 0.5f), dweight(kN), dbias(kN);
  std::vector<float> weight(kN, 1.5f);  // positive, so that rows of zeros give +0
  tn_backward_args b = backward_args(TN_RMS_NORM);
  b.dy = dy.all;
  b.s = s.all;
  b.rstd = tn_vector(rstd.data(), TN_F32, kRows);
  b.weight = tn_vector(weight.data(), TN_F32, kN);
  b.dx = dx.all;
  b.dweight = tn_vector(dweight.data(), TN_F32, kN);
  b.dbias = tn_vector(dbias.data(), TN_F32, kN);
  std::memset(dx.memory.data(), 0xff, kPeriodRows * kN * 2);
  const tn_exec exec = on(TN_ISA_AUTO, shared_pool(2));
  tn_workspace workspace{};
  ASSERT_EQ(tn_backward_workspace(&exec, &b, &workspace, nullptr), TN_OK);
  std::vector<std::byte> scratch(workspace.size);
  workspace.data = scratch.data();
  tn_error error;
  ASSERT_EQ(tn_backward(&exec, &b, &workspace, &error), TN_OK) << error.message;

  tn_backward_args last = b;
  last.dy = row_view(dy.tail, kTailRows - 1);
  last.s = row_view(s.tail, kTailRows - 1);
  last.rstd = tn_vector(rstd.data(), TN_F32, 1);
  last.dx = row_view(dx.tail, kTailRows - 1);
  expect_bits(last, model_backward(last));
  const Bits zeros(kN, 0u);
  for (std::int64_t r = 0; r < kTailRows - 1; ++r) {
    last.dy = row_view(dy.tail, r);
    last.s = row_view(s.tail, r);
    last.dx = row_view(dx.tail, r);
    expect_row(dx.tail, r, model_backward(last).dx);
  }
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{2}, kPeriodRows - 1}) expect_row(dx.period, r, zeros);
}

// ---- Few elements, far apart

constexpr std::int64_t kFar = std::int64_t{1} << 31;  // elements

class Cases_Sizes_FarRows : public testing::TestWithParam<tn_isa> {
 protected:
  static constexpr std::int64_t n = 300;
  Mapping memory{static_cast<std::size_t>(5 * kFar * 4)};
  Rng rng{22};

  // Two rows `kFar` elements apart; each view starts somewhere else.
  tn_tensor far(tn_dtype type, std::int64_t start) {
    return {memory.data() + start * 4096, type, 2, {2, n}, {kFar, 1}};
  }
  tn_tensor far_blocks(tn_dtype type, std::int64_t start) {
    return {memory.data() + start * 4096, type, 3, {2, 3, n}, {2 * kFar, n + 1, 1}};
  }

  void check_both(const std::vector<tn_tensor>& t) {
    const std::int64_t m = rows_of(t[0]);
    std::vector<float> rstd(static_cast<std::size_t>(m)), weight(n), dweight(n);
    tn_forward_args f = forward_args(TN_RMS_NORM);
    f.x = t[0];
    f.residual = t[1];
    f.y = t[2];
    f.residual_out = t[3];
    f.rstd = tn_vector(rstd.data(), TN_F32, m);
    fill(f.x, rng, Fill::normal);
    fill(f.residual, rng, Fill::normal);
    const ForwardBits expected = model_forward(f);
    forward(f, on(GetParam()));
    expect_bits(f, expected);

    tn_backward_args b = backward_args(TN_RMS_NORM);
    b.dy = t[0];
    b.s = t[1];
    b.rstd = f.rstd;
    b.dx = t[2];
    b.dresidual = t[3];
    b.weight = tn_vector(weight.data(), TN_F32, n);
    b.dweight = tn_vector(dweight.data(), TN_F32, n);
    fill(b.weight, rng, Fill::normal);
    const BackwardBits expected_back = model_backward(b);
    backward(b, on(GetParam()));
    expect_bits(b, expected_back);
  }
};

TEST_P(Cases_Sizes_FarRows, TwoRows) {
  for (const tn_dtype type : {TN_F32, TN_BF16}) {
    check_both({far(type, 0), far(type, 1), far(type, 2), far(type, 3)});
  }
}

TEST_P(Cases_Sizes_FarRows, TwoBlocksOfRows) {
  for (const tn_dtype type : {TN_F32, TN_F16}) {
    check_both({far_blocks(type, 0), far_blocks(type, 4), far_blocks(type, 8), far_blocks(type, 12)});
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Cases_Sizes_FarRows, testing::ValuesIn(available_isas()),
                         [](const auto& tested) { return std::string(tn_isa_name(tested.param)); });

// ---- Many short rows

constexpr std::int64_t kShort = 128;
constexpr std::int64_t kMany = (std::int64_t{1} << 23) + 16;

bool all_zero(const std::byte* data, std::size_t size) {
  static const std::vector<std::byte> zeros(1 << 20);
  for (std::size_t i = 0; i < size; i += zeros.size()) {
    if (std::memcmp(data + i, zeros.data(), std::min(zeros.size(), size - i)) != 0) return false;
  }
  return true;
}

TEST(Cases_Sizes_Large, OnlyTheLastOfManyShortRowsIsNotZero) {
  Rng rng(23);
  constexpr std::size_t bytes = kMany * kShort * 2, last_row = bytes - kShort * 2;
  const Mapping in(bytes), in2(bytes);  // two inputs of zero pages
  Mapping out(bytes);
  std::vector<float> rstd(kMany), dweight(kShort), weight(kShort, 1.5f);
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = tn_matrix(in.data(), TN_BF16, kMany, kShort);
  f.y = tn_matrix(out.data(), TN_BF16, kMany, kShort);
  f.rstd = tn_vector(rstd.data(), TN_F32, kMany);
  write_row(f.x, kMany - 1, rng);
  std::memset(out.data(), 0xff, bytes);
  const tn_exec exec = on(TN_ISA_AUTO, shared_pool(2));
  forward(f, exec);
  EXPECT_TRUE(all_zero(out.data(), last_row));
  tn_forward_args last = f;
  last.x = row_view(f.x, kMany - 1);
  last.rstd = tn_vector(&rstd[kMany - 1], TN_F32, 1);
  const ForwardBits expected = model_forward(last);
  expect_row(f.y, kMany - 1, expected.y);
  EXPECT_TRUE(equal_bits(last.rstd, expected.rstd));

  tn_backward_args b = backward_args(TN_RMS_NORM);
  b.dy = tn_matrix(in2.data(), TN_BF16, kMany, kShort);
  b.s = f.x;
  b.rstd = f.rstd;
  b.dx = f.y;
  b.weight = tn_vector(weight.data(), TN_F32, kShort);
  b.dweight = tn_vector(dweight.data(), TN_F32, kShort);
  write_row(b.dy, kMany - 1, rng);
  std::memset(out.data(), 0xff, bytes);
  backward(b, exec);
  EXPECT_TRUE(all_zero(out.data(), last_row));
  tn_backward_args last_back = b;
  last_back.dy = row_view(b.dy, kMany - 1);
  last_back.s = last.x;
  last_back.rstd = last.rstd;
  last_back.dx = row_view(b.dx, kMany - 1);
  const BackwardBits expected_back = model_backward(last_back);
  expect_row(b.dx, kMany - 1, expected_back.dx);
  EXPECT_TRUE(equal_bits(b.dweight, expected_back.dweight));
}

}  // namespace
}  // namespace truenorm::test
