// The backward of so many rows that every strip has many tiles: places in shared memory are used again and again, by
// each thread's own copies and by large ones. Rows dense, apart, in the middle of sectors, and on two levels; types
// that go together, and mixed.
#include <gtest/gtest.h>

#include "cuda/check.hpp"
#include "cuda/device.hpp"
#include "support/call.hpp"

namespace truenorm::test {
namespace {

enum class Rows { dense, apart, in_sectors, on_two_levels };

Layout layout_of(Rows rows, Size size) {
  const auto [m, n] = size;
  switch (rows) {
    case Rows::dense: return dense(m, n);
    case Rows::apart: return {2, 1, m, 0, n + 32, 0};
    case Rows::in_sectors: return {2, 1, m, 0, n + 8, 8};
    case Rows::on_two_levels: return {3, m / 10, 10, 10 * n + 64, n, 0};
  }
  return {};
}

struct Call {
  tn_op op;
  bool add;
  tn_dtype dy, s, ds, weight;
};

void check_backward(const Call& of, Rows rows, Size size) {
  SCOPED_TRACE(testing::Message() << (of.add ? "add, " : "") << (of.op == TN_LAYER_NORM ? "layer norm" : "RMS norm")
                                  << " of " << tn_dtype_name(of.dy) << ", " << tn_dtype_name(of.s) << ", rows "
                                  << static_cast<int>(rows));
  const auto [m, n] = size;
  const bool layer = of.op == TN_LAYER_NORM;
  Rng rng(static_cast<std::uint64_t>(m * 37 + n));
  Arena arena;
  tn_backward_args b = backward_args(of.op);
  b.dy = arena.matrix(of.dy, layout_of(rows, size), n);
  if (of.add) b.ds = arena.matrix(of.ds, layout_of(rows, size), n);
  b.s = arena.matrix(of.s, layout_of(rows, size), n);
  b.weight = arena.vector(of.weight, n);
  if (layer) b.mean = arena.vector(TN_F32, m);
  b.rstd = arena.vector(TN_F32, m);
  b.dx = arena.matrix(of.dy, m, n);
  b.dweight = arena.vector(of.weight, n);
  if (layer) b.dbias = arena.vector(of.weight, n);
  fill_all({b.dy, b.ds, b.s, b.weight, b.mean, b.rstd}, rng);
  check_outputs(arena, b, {b.dx, b.dweight, b.dbias});
}

class CudaManyTiles : public testing::TestWithParam<Size> {};

TEST_P(CudaManyTiles, Backward) {
  TN_NEEDS_CUDA();
  for (const Rows rows : {Rows::dense, Rows::apart, Rows::in_sectors, Rows::on_two_levels}) {
    for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
      if (HasFailure()) return;
      for (const bool add : {false, true})
        check_backward({op, add, TN_BF16, TN_BF16, TN_BF16, TN_BF16}, rows, GetParam());
      check_backward({op, true, TN_F32, TN_F32, TN_F32, TN_F32}, rows, GetParam());
      check_backward({op, true, TN_F16, TN_F16, TN_F16, TN_F32}, rows, GetParam());
      check_backward({op, true, TN_BF16, TN_F32, TN_F16, TN_F32}, rows, GetParam());
    }
  }
}

// Thread blocks and pairs of them, of few warps and of many, one to three chunks a thread; the last tile in part.
INSTANTIATE_TEST_SUITE_P(Size, CudaManyTiles,
                         testing::Values(Size{2170, 2304}, Size{1450, 3072}, Size{1550, 4096}, Size{1100, 4104},
                                         Size{1100, 5120}, Size{770, 6144}, Size{770, 8192}, Size{550, 8200},
                                         Size{390, 12288}, Size{390, 18432}),
                         name_of_size);

}  // namespace
}  // namespace truenorm::test
