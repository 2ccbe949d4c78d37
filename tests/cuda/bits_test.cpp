// The device's bits are the CPU's: random calls, sizes around every boundary of the kernels, repeats, graphs, streams.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/check.hpp"
#include "cuda/device.hpp"
#include "cuda/stream.hpp"
#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {
namespace {

constexpr int kShards = 8;
constexpr int kDefaultCases = 20000;

int case_count() {
  const char* wanted = std::getenv("TRUENORM_TEST_CUDA_CASES");
  return wanted == nullptr ? kDefaultCases : std::atoi(wanted);
}

template <class Args>
void check_variation(const Args& args, Rng& rng, Variation options) {
  const auto expected = on_cpu(args);
  Arena arena;
  const Args varied = vary(args, rng, arena, options);
  check_call(arena, varied, expected);
}

void check_case(std::uint64_t seed, bool forward_direction, Size size, tn_dtype type, Variation options) {
  Rng rng(seed);
  Arena arena;
  SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << (forward_direction ? "forward" : "backward") << " of "
                                  << size.m << " x " << size.n << ", " << tn_dtype_name(type)
                                  << (options.may_move ? "" : ", dense") << (options.may_be_in_place ? "" : ", apart"));
  if (forward_direction) {
    check_variation(random_forward(rng, arena, size, type), rng, options);
  } else {
    check_variation(random_backward(rng, arena, size, type), rng, options);
  }
}

// A third of the cases each: anything; all matrices of one type; those, dense and aligned.
void check_any(std::uint64_t seed, bool forward_direction, Size size) {
  Rng rng(seed ^ 0x5eedu);
  const auto one = static_cast<tn_dtype>(rng.between(TN_F32, TN_BF16));
  switch (rng.below(3)) {
    case 0: return check_case(seed, forward_direction, size, TN_DTYPE_NONE, {});
    case 1: return check_case(seed, forward_direction, size, one, {true, rng.chance(0.5), true});
    default: return check_case(seed, forward_direction, size, one, {rng.chance(0.3), rng.chance(0.3), false});
  }
}

class CudaBits_Random : public testing::TestWithParam<int> {};

TEST_P(CudaBits_Random, Cases) {
  TN_NEEDS_CUDA();
  for (int i = GetParam(); i < case_count() && !HasFailure(); i += kShards) {
    const auto seed = static_cast<std::uint64_t>(i);
    Rng rng(seed ^ 0xabcdefu);
    check_any(seed, i / kShards % 2 == 0, random_size(rng));
  }
}
INSTANTIATE_TEST_SUITE_P(Shard, CudaBits_Random, testing::Range(0, kShards));

class CudaBits_Sizes : public testing::TestWithParam<std::int64_t> {};

TEST_P(CudaBits_Sizes, ForwardAndBackward) {
  TN_NEEDS_CUDA();
  const std::int64_t n = GetParam();
  std::uint64_t seed = 700000 + static_cast<std::uint64_t>(n);
  for (const std::int64_t m : {1, 2, 3, 127, 128, 129, 300, 700, 1500}) {
    if (m * n > 5 * 1000 * 1000) continue;
    for (const bool forward_direction : {true, false}) {
      for (const tn_dtype type : {TN_DTYPE_NONE, TN_F32, TN_F16, TN_BF16}) {
        if (HasFailure()) return;
        check_case(++seed, forward_direction, {m, n}, type, {});
        if (type != TN_DTYPE_NONE) check_case(++seed, forward_direction, {m, n}, type, {false, false, false});
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(N, CudaBits_Sizes,
                         testing::Values(1, 2, 3, 7, 8, 17, 63, 64, 65, 127, 128, 129, 256, 257, 384, 512, 513, 640,
                                         768, 769, 1024, 1025, 1280, 1536, 1600, 2048, 2049, 2560, 3072, 3584, 4088,
                                         4095, 4096, 4097, 4104, 5120, 6144, 7168, 8184, 8191, 8192, 8193, 8200, 9216,
                                         12288, 16376, 16383, 16384, 16385, 16392, 18432, 24576, 32768, 65537, 131072,
                                         262144));

// Sizes that bring each kernel, of whole chunks and of rows that start anywhere, apart and in place: several turns of
// narrow rows, every team of strips, rows and columns, long rows. For the sanitizers, which have no time for many
// cases.
class CudaBits_Kernels : public testing::TestWithParam<Size> {};

TEST_P(CudaBits_Kernels, Calls) {
  TN_NEEDS_CUDA();
  const Size size = GetParam();
  auto seed = static_cast<std::uint64_t>(800000 + 100 * size.n);
  for (const tn_dtype type : {TN_BF16, TN_F32, TN_F16}) {
    for (const bool forward_direction : {true, false}) {
      if (HasFailure()) return;
      check_case(++seed, forward_direction, size, type, {false, false, false});
      check_case(++seed, forward_direction, size, type, {false, true, true});
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Size, CudaBits_Kernels,
                         testing::Values(Size{26000, 65}, Size{1000, 128}, Size{13000, 128}, Size{13000, 129},
                                         Size{300, 768}, Size{512, 1024}, Size{300, 1100}, Size{300, 2048},
                                         Size{130, 2100}, Size{300, 2304}, Size{300, 4096}, Size{70, 4100},
                                         Size{300, 4104}, Size{300, 6144}, Size{300, 8192}, Size{300, 9000},
                                         Size{70, 16400}, Size{270, 16400}, Size{2, 24584}),
                         name_of_size);

// Without dy the gradient is ds, and s is not read: dx may lie over it, however many rows there are.
TEST(CudaBits, DxOverSWithoutDy) {
  TN_NEEDS_CUDA();
  for (const Size size : {Size{3000, 1024}, {3000, 4096}, {1000, 4097}, {600, 24584}}) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    Rng rng(900);
    Arena arena;
    tn_backward_args args = backward_args(TN_RMS_NORM);
    args.ds = arena.matrix(TN_BF16, size.m, size.n);
    args.s = arena.matrix(TN_BF16, size.m, size.n);
    args.weight = arena.vector(TN_BF16, size.n);
    args.rstd = arena.vector(TN_F32, size.m);
    args.dx = arena.matrix(TN_BF16, size.m, size.n);
    args.dweight = arena.vector(TN_F32, size.n);
    for (const tn_tensor& t : {args.ds, args.s, args.weight, args.rstd}) fill(t, rng, Fill::normal);
    const BackwardBits expected = on_cpu(args);
    args.dx = args.s;
    args.in_place = TN_DX_OVER_X;
    for (const tn_tensor& t : {args.dx, args.dweight}) arena.allow(t);
    spoil_outputs(args);  // where dweight has the CPU's zeros
    check_call(arena, args, expected);
  }
}

// Fewer and more rows than any number of thread blocks.
TEST(CudaBits, ManyRows) {
  TN_NEEDS_CUDA();
  std::uint64_t seed = 600000;
  for (const Size size :
       {Size{65537, 1}, {65537, 16}, {65537, 33}, {70000, 128}, {20000, 64}, {20001, 200}, {9000, 768}}) {
    for (const tn_dtype type : {TN_DTYPE_NONE, TN_BF16}) {
      for (const bool forward_direction : {true, false}) {
        if (HasFailure()) return;
        check_case(++seed, forward_direction, size, type, {true, false, true});
        check_case(++seed, forward_direction, size, type, {false, true, false});
      }
    }
  }
}

// Fifty times the same, while other calls keep the device busy.
TEST(CudaBits, RunToRun) {
  TN_NEEDS_CUDA();
  const Stream streams[2];
  for (const Size size : {Size{2048, 4096}, {300, 8192}, {4096, 768}, {128, 4096}, {20000, 128}, {64, 18432}}) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    Rng rng(static_cast<std::uint64_t>(size.n));
    Arena arena;
    tn_backward_args args = random_backward(rng, arena, size, TN_BF16);
    const BackwardBits expected = on_cpu(args);
    const DeviceWorkspace workspaces[2] = {DeviceWorkspace(args), DeviceWorkspace(args)};
    DeviceCopy busy(arena), copy(arena);
    busy.upload();
    for (int i = 0; i < 50 && !testing::Test::HasFailure(); ++i) {
      spoil_outputs(args);
      copy.upload();
      for (int k = 0; k < 3; ++k) enqueue(busy.moved(args), workspaces[1], streams[1].get());
      enqueue(copy.moved(args), workspaces[0], streams[0].get());
      copy.download();
      expect_bits(args, expected);
    }
    for (const DeviceWorkspace& w : workspaces) EXPECT_TRUE(w.left_well());
  }
}

}  // namespace
}  // namespace truenorm::test
