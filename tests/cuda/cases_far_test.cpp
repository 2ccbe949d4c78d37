// Faults of published libraries on a device: few elements in rows so far apart that their offsets need more than 32
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/large.hpp"
#include "support/call.hpp"

namespace truenorm::test {
namespace {

constexpr std::int64_t k31 = std::int64_t{1} << 31;

// Where rows lie, in elements; several such tensors share one array, each starting somewhere else.
struct Far {
  tn_dtype type;
  std::int64_t n;
  std::int64_t offset;  // from a multiple of 16 bytes
  std::int64_t inner, inner_stride;
  std::int64_t outer = 1, outer_stride = 0;
};

class CudaCases_FarRows : public testing::TestWithParam<Far> {
 protected:
  static constexpr std::int64_t kBetween = 1 << 16;  // elements from one tensor's start to the next one's
  const Far far = GetParam();
  const std::int64_t m = far.inner * far.outer;
  const std::int64_t reach = (far.outer - 1) * far.outer_stride + (far.inner - 1) * far.inner_stride + 8 * kBetween;
  Arena arena;
  Rng rng{80};

  std::size_t size() const { return static_cast<std::size_t>(reach) * tn_dtype_size(far.type); }

  tn_tensor here(bool filled) {
    const tn_tensor t = arena.matrix(far.type, m, far.n);
    if (filled) fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor vector_here(std::int64_t count) {
    const tn_tensor t = arena.vector(TN_F32, count);
    fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor there(const Large& memory, std::int64_t number) const {
    const auto start = static_cast<std::size_t>(number * kBetween + far.offset) * tn_dtype_size(far.type);
    std::byte* const data = memory.data() + start;
    if (far.outer == 1) return {data, far.type, 2, {far.inner, far.n}, {far.inner_stride, 1}};
    return {data, far.type, 3, {far.outer, far.inner, far.n}, {far.outer_stride, far.inner_stride, 1}};
  }

  void copy(const tn_tensor& to, const tn_tensor& from, cudaMemcpyKind kind) const {
    for (std::int64_t r = 0; r < m; ++r) {
      const std::size_t bytes = static_cast<std::size_t>(far.n) * tn_dtype_size(far.type);
      require(cudaMemcpy(row_at(to, r), row_at(from, r), bytes, kind));
    }
  }
};

TEST_P(CudaCases_FarRows, ForwardAndBackward) {
  TN_NEEDS_CUDA();
  const Turn turn;
  TN_NEEDS_DEVICE_MEMORY(size());
  const Large memory(size());
  const tn_tensor places[4] = {there(memory, 0), there(memory, 1), there(memory, 2), there(memory, 3)};

  tn_forward_args f = forward_args(TN_RMS_NORM);
  f.x = here(true);
  f.residual = here(true);
  f.weight = vector_here(far.n);
  f.y = here(false);
  f.residual_out = here(false);
  f.rstd = arena.vector(TN_F32, m);
  const ForwardBits forward_bits = on_cpu(f);
  tn_backward_args b = backward_args(TN_RMS_NORM);
  b.dy = f.x;
  b.s = f.residual;
  b.weight = f.weight;
  b.rstd = vector_here(m);
  b.dx = f.y;
  b.dresidual = f.residual_out;
  b.dweight = arena.vector(TN_F32, far.n);
  const BackwardBits backward_bits = on_cpu(b);

  DeviceCopy vectors(arena);
  spoil_outputs(f);
  vectors.upload();
  copy(places[0], f.x, cudaMemcpyHostToDevice);
  copy(places[1], f.residual, cudaMemcpyHostToDevice);
  tn_forward_args f_there = vectors.moved(f);
  f_there.x = places[0];
  f_there.residual = places[1];
  f_there.y = places[2];
  f_there.residual_out = places[3];
  enqueue(f_there);
  vectors.download();
  copy(f.y, places[2], cudaMemcpyDeviceToHost);
  copy(f.residual_out, places[3], cudaMemcpyDeviceToHost);
  expect_bits(f, forward_bits);

  spoil_outputs(b);
  vectors.upload();
  copy(places[2], b.dx, cudaMemcpyHostToDevice);
  copy(places[3], b.dresidual, cudaMemcpyHostToDevice);
  tn_backward_args b_there = vectors.moved(b);
  b_there.dy = places[0];
  b_there.s = places[1];
  b_there.dx = places[2];
  b_there.dresidual = places[3];
  const DeviceWorkspace workspace(b_there);
  enqueue(b_there, workspace);
  EXPECT_TRUE(workspace.left_well());
  vectors.download();
  copy(b.dx, places[2], cudaMemcpyDeviceToHost);
  copy(b.dresidual, places[3], cudaMemcpyDeviceToHost);
  expect_bits(b, backward_bits);
  EXPECT_TRUE(memory.margins_whole());
}
// Two rows on every path of their width; blocks of rows; and as many rows as kernels for many rows want.
INSTANTIATE_TEST_SUITE_P(Layout, CudaCases_FarRows,
                         testing::Values(Far{TN_BF16, 304, 0, 2, k31}, Far{TN_BF16, 300, 1, 2, k31},
                                         Far{TN_F32, 304, 0, 2, k31}, Far{TN_BF16, 8192, 0, 2, k31},
                                         Far{TN_F16, 300, 1, 3, 301, 2, 2 * k31},
                                         Far{TN_BF16, 2048, 0, 300, (1 << 24) + 8},
                                         Far{TN_BF16, 2047, 0, 300, (1 << 24) + 1}));

}  // namespace
}  // namespace truenorm::test
