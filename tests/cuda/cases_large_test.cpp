// Faults of published libraries on a device: more than 2^31 elements, 2^16 rows and more. All rows are checked:
// matrices repeat a few thousand rows over and over, an odd number of them, so that an address that wraps around at a
// power of two meets other data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/large.hpp"
#include "support/call.hpp"

namespace truenorm::test {
namespace {

std::size_t bytes_of(tn_dtype type, std::int64_t count) {
  return static_cast<std::size_t>(count) * tn_dtype_size(type);
}

// Any numbers between 1/2 and 2, of both signs or positive: `fill` would take longer than all else here.
std::vector<std::byte> numbers(tn_dtype type, std::int64_t count, std::uint64_t seed, bool positive = false) {
  Rng rng(seed);
  std::vector<std::byte> bytes((bytes_of(type, count) + 7) / 8 * 8);
  const std::uint64_t random =
      (type == TN_F32 ? 0x80ffffff80ffffffu : 0x80ff80ff80ff80ffu) & ~(positive ? 0x8000800080008000u : 0u);
  const std::uint64_t fixed = type == TN_F32 ? 0x3f0000003f000000u : 0x3f003f003f003f00u;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t bits = (rng.next() & random) | fixed;
    std::memcpy(&bytes[i], &bits, 8);
  }
  bytes.resize(bytes_of(type, count));
  return bytes;
}

tn_exec all_threads() {
  static const Pool pool(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u)));
  return on(TN_ISA_AUTO, pool.get());
}

struct Shape {
  std::int64_t m, n;
  tn_dtype type = TN_BF16;
  tn_op op = TN_RMS_NORM;
  bool vectors = true;  // statistics in the forward, weight gradients in the backward

  std::int64_t period() const { return std::min(((std::int64_t{1} << 23) / n) | 1, m | 1); }  // rows
};

// The first multiple of a period past `elements`.
Shape past(std::int64_t elements, Shape shape) {
  shape.m = elements / shape.n;
  shape.m = (elements / (shape.period() * shape.n) + 1) * shape.period();
  return shape;
}

constexpr std::int64_t k31 = std::int64_t{1} << 31, k32 = std::int64_t{1} << 32;

std::string name_of(const testing::TestParamInfo<Shape>& tested) {
  const Shape& s = tested.param;
  return std::to_string(s.m) + "x" + std::to_string(s.n) + tn_dtype_name(s.type) + (s.vectors ? "" : "alone");
}

class CudaCases_Large : public testing::TestWithParam<Shape> {
 protected:
  const Shape s = GetParam();
  const std::int64_t rows = s.period();
  const std::vector<std::byte> weight = numbers(s.type, s.n, 70);

  std::size_t bytes(std::int64_t m) const { return bytes_of(s.type, m * s.n); }
  tn_tensor matrix(const std::vector<std::byte>& period) const { return tn_matrix(host(period), s.type, rows, s.n); }
  static std::byte* host(const std::vector<std::byte>& v) { return const_cast<std::byte*>(v.data()); }
};

class CudaCases_LargeForward : public CudaCases_Large {};

TEST_P(CudaCases_LargeForward, AllRows) {
  TN_NEEDS_CUDA();
  const Turn turn;
  TN_NEEDS_DEVICE_MEMORY(2 * bytes(s.m));
  const std::vector<std::byte> x = numbers(s.type, rows * s.n, 71);
  std::vector<std::byte> y(x.size()), mean(bytes_of(TN_F32, rows)), rstd(bytes_of(TN_F32, rows));
  tn_forward_args f = forward_args(s.op);
  f.x = matrix(x);
  f.weight = tn_vector(host(weight), s.type, s.n);
  f.y = matrix(y);
  if (s.vectors) f.rstd = tn_vector(rstd.data(), TN_F32, rows);
  if (s.vectors && s.op == TN_LAYER_NORM) f.mean = tn_vector(mean.data(), TN_F32, rows);
  forward(f, all_threads());

  const std::size_t vector = s.vectors ? bytes_of(TN_F32, s.m) : 0;
  Large x_there(bytes(s.m)), weight_there(weight.size());
  const Large y_there(bytes(s.m)), mean_there(absent(f.mean) ? 0 : vector), rstd_there(vector);
  x_there.repeat(x);
  weight_there.repeat(weight);
  tn_forward_args there = f;
  there.x = tn_matrix(x_there.data(), s.type, s.m, s.n);
  there.weight.data = weight_there.data();
  there.y = tn_matrix(y_there.data(), s.type, s.m, s.n);
  if (!absent(f.rstd)) there.rstd = tn_vector(rstd_there.data(), TN_F32, s.m);
  if (!absent(f.mean)) there.mean = tn_vector(mean_there.data(), TN_F32, s.m);
  enqueue(there);
  require(cudaDeviceSynchronize());
  EXPECT_TRUE(y_there.repeats(y)) << "y";
  EXPECT_TRUE(rstd_there.repeats(rstd)) << "rstd";
  EXPECT_TRUE(mean_there.repeats(mean)) << "mean";
}
INSTANTIATE_TEST_SUITE_P(Shape, CudaCases_LargeForward,
                         testing::Values(Shape{65535, 2056}, Shape{65536, 2056}, Shape{65537, 2056},
                                         Shape{65537, 2057, TN_F32, TN_LAYER_NORM}, past(k31, {0, 4104}),
                                         past(k31, {0, 4101, TN_BF16, TN_LAYER_NORM}), past(k31, {0, 128}),
                                         past(k31, {0, 300, TN_F32, TN_LAYER_NORM}),
                                         past(k31, {0, 1, TN_BF16, TN_RMS_NORM, false}), past(k32, {0, 4104})),
                         name_of);

class CudaCases_LargeBackward : public CudaCases_Large {
 protected:
  // All rows of a matrix of so many: as a view that repeats where they are whole periods, else in memory of their own.
  tn_tensor all_rows(const std::vector<std::byte>& period, std::vector<std::byte>& memory) const {
    if (s.m % rows == 0) return {host(period), s.type, 3, {s.m / rows, rows, s.n}, {0, s.n, 1}};
    memory = repeated(period, bytes(s.m));
    return tn_matrix(memory.data(), s.type, s.m, s.n);
  }
  static std::vector<std::byte> repeated(const std::vector<std::byte>& period, std::size_t size) {
    std::vector<std::byte> all(size);
    for (std::size_t at = 0; at < size; at += period.size()) {
      std::copy_n(period.begin(), std::min(period.size(), size - at), all.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return all;
  }
};

TEST_P(CudaCases_LargeBackward, AllRows) {
  TN_NEEDS_CUDA();
  const Turn turn;
  TN_NEEDS_DEVICE_MEMORY(3 * bytes(s.m) + 2 * bytes_of(TN_F32, s.m));
  const bool layer = s.op == TN_LAYER_NORM;
  const std::vector<std::byte> dy = numbers(s.type, rows * s.n, 72), saved = numbers(s.type, rows * s.n, 73);
  const std::vector<std::byte> rstd = numbers(TN_F32, rows, 74, true), mean = numbers(TN_F32, layer ? rows : 0, 75);
  std::vector<std::byte> dx(dy.size()), dweight(bytes_of(TN_F32, s.n)), dbias(dweight.size());
  tn_backward_args b = backward_args(s.op);
  b.dy = matrix(dy);
  b.s = matrix(saved);
  b.weight = tn_vector(host(weight), s.type, s.n);
  b.rstd = tn_vector(host(rstd), TN_F32, rows);
  if (layer) b.mean = tn_vector(host(mean), TN_F32, rows);
  b.dx = matrix(dx);
  backward(b, all_threads());
  if (s.vectors) {
    tn_backward_args sums = b;
    std::vector<std::byte> all_dy, all_saved, all_rstd = repeated(rstd, bytes_of(TN_F32, s.m)), all_mean;
    if (layer) all_mean = repeated(mean, bytes_of(TN_F32, s.m));
    sums.dy = all_rows(dy, all_dy);
    sums.s = all_rows(saved, all_saved);
    sums.rstd = tn_vector(all_rstd.data(), TN_F32, s.m);
    if (layer) sums.mean = tn_vector(all_mean.data(), TN_F32, s.m);
    sums.dx = {};
    sums.dweight = tn_vector(dweight.data(), TN_F32, s.n);
    sums.dbias = tn_vector(dbias.data(), TN_F32, s.n);
    backward(sums, all_threads());
  }

  Large dy_there(bytes(s.m)), s_there(bytes(s.m)), weight_there(weight.size()), rstd_there(bytes_of(TN_F32, s.m));
  Large mean_there(layer ? rstd_there.size() : 0);
  const Large dx_there(bytes(s.m)), dweight_there(dweight.size()), dbias_there(dbias.size());
  dy_there.repeat(dy);
  s_there.repeat(saved);
  weight_there.repeat(weight);
  rstd_there.repeat(rstd);
  mean_there.repeat(mean);
  tn_backward_args there = b;
  there.dy = tn_matrix(dy_there.data(), s.type, s.m, s.n);
  there.s = tn_matrix(s_there.data(), s.type, s.m, s.n);
  there.weight.data = weight_there.data();
  there.rstd = tn_vector(rstd_there.data(), TN_F32, s.m);
  if (layer) there.mean = tn_vector(mean_there.data(), TN_F32, s.m);
  there.dx = tn_matrix(dx_there.data(), s.type, s.m, s.n);
  if (s.vectors) {
    there.dweight = tn_vector(dweight_there.data(), TN_F32, s.n);
    there.dbias = tn_vector(dbias_there.data(), TN_F32, s.n);
  }
  const DeviceWorkspace workspace(there);
  enqueue(there, workspace);
  EXPECT_TRUE(workspace.left_well());
  EXPECT_TRUE(dx_there.repeats(dx)) << "dx";
  if (!s.vectors) return;
  EXPECT_TRUE(dweight_there.repeats(dweight)) << "dweight";
  EXPECT_TRUE(dbias_there.repeats(dbias)) << "dbias";
}
INSTANTIATE_TEST_SUITE_P(Shape, CudaCases_LargeBackward,
                         testing::Values(Shape{65535, 2056}, Shape{65536, 2056}, Shape{65537, 2056},
                                         Shape{65537, 2057, TN_BF16, TN_LAYER_NORM}, past(k31, {0, 4104}),
                                         past(k31, {0, 4101}), past(k31, {0, 128, TN_BF16, TN_LAYER_NORM}),
                                         past(k31, {0, 1, TN_BF16, TN_RMS_NORM, false})),
                         name_of);

// ---- Many short rows, of which only the last is not zero

TEST(CudaCases_LargeZeros, OnlyTheLastOfManyShortRowsIsNot) {
  TN_NEEDS_CUDA();
  const Turn turn;
  constexpr std::int64_t n = 128, m = (std::int64_t{1} << 23) + 16;
  constexpr std::size_t row = n * 2, before = static_cast<std::size_t>(m - 1) * row;
  TN_NEEDS_DEVICE_MEMORY(3 * (before + row));
  const std::vector<std::byte> x = numbers(TN_BF16, n, 76), dy = numbers(TN_BF16, n, 77);
  const std::vector<std::byte> weight = numbers(TN_BF16, n, 78, true);  // so that zeros stay positive
  std::vector<std::byte> y(row), dx(row), dweight(n * 4);
  const std::vector<std::byte> zeros(row << 16);
  const auto of = [](const std::vector<std::byte>& v, tn_dtype type) {
    return tn_vector(const_cast<std::byte*>(v.data()), type, n);
  };
  std::vector<float> rstd(1);
  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = of(x, TN_BF16);
  f.weight = of(weight, TN_BF16);
  f.y = of(y, TN_BF16);
  f.rstd = tn_vector(rstd.data(), TN_F32, 1);
  forward(f);
  tn_backward_args b = backward_args(TN_RMS_NORM);
  b.dy = of(dy, TN_BF16);
  b.s = f.x;
  b.weight = f.weight;
  b.rstd = f.rstd;
  b.dx = of(dx, TN_BF16);
  b.dweight = of(dweight, TN_F32);
  backward(b);

  Large in(before + row), in2(before + row), weight_there(row), rstd_there(m * 4);
  const Large dweight_there(n * 4);
  weight_there.repeat(weight);
  in.repeat(zeros);
  in2.repeat(zeros);
  require(cudaMemcpy(in.data() + before, x.data(), row, cudaMemcpyHostToDevice));
  require(cudaMemcpy(in2.data() + before, dy.data(), row, cudaMemcpyHostToDevice));
  const Large out(before + row);
  f.x = tn_matrix(in.data(), TN_BF16, m, n);
  f.weight.data = weight_there.data();
  f.y = tn_matrix(out.data(), TN_BF16, m, n);
  f.rstd = tn_vector(rstd_there.data(), TN_F32, m);
  enqueue(f);
  EXPECT_TRUE(out.repeats(zeros, 0, before)) << "y";
  EXPECT_TRUE(out.repeats(y, before, before + row)) << "the last row of y";
  b.dy = tn_matrix(in2.data(), TN_BF16, m, n);
  b.s = f.x;
  b.weight = f.weight;
  b.rstd = f.rstd;
  require(cudaMemset(out.data(), 0xff, out.size()));  // most of dx is what most of y was
  b.dx = f.y;
  b.dweight.data = dweight_there.data();
  const DeviceWorkspace workspace(b);
  enqueue(b, workspace);
  EXPECT_TRUE(workspace.left_well());
  EXPECT_TRUE(out.repeats(zeros, 0, before)) << "dx";
  EXPECT_TRUE(out.repeats(dx, before, before + row)) << "the last row of dx";
  EXPECT_TRUE(dweight_there.repeats(dweight)) << "dweight";
}

}  // namespace
}  // namespace truenorm::test
