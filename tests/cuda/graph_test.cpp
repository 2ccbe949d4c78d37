// Captured calls: one kernel a call and nothing else; replays follow their inputs; many at once all finish.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/stream.hpp"
#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {
namespace {

constexpr Size kSizes[] = {{1, 4096},    {128, 4096},  {2048, 4096}, {128, 8192},  {1024, 8192},
                           {128, 18432}, {500, 18432}, {8192, 128},  {4096, 1024}, {2048, 768},
                           {300, 12288}, {3, 65537},   {0, 64},      {64, 4097}};

TEST(CudaGraph, OneKernelACallAndNothingElse) {
  TN_NEEDS_CUDA();
  const Stream stream;
  for (const Size size : kSizes) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(testing::Message() << size.m << " x " << size.n << ", seed " << seed);
      Rng rng(seed);
      Arena arena;
      const tn_dtype type = seed % 2 == 0 ? TN_BF16 : TN_F32;
      const tn_forward_args f = vary(random_forward(rng, arena, size, type), rng, arena);
      const tn_backward_args b = vary(random_backward(rng, arena, size, type), rng, arena);
      const DeviceCopy copy(arena);
      const DeviceWorkspace workspace(b);
      const Graph forward_graph(stream.get(), [&] { enqueue(copy.moved(f), stream.get()); });
      const Graph backward_graph(stream.get(), [&] { enqueue(copy.moved(b), workspace, stream.get()); });
      const bool sums = !absent(b.dweight) || !absent(b.dbias);
      const std::vector<cudaGraphNodeType> one{cudaGraphNodeTypeKernel}, none;
      EXPECT_EQ(forward_graph.nodes(), size.m == 0 ? none : one);
      EXPECT_EQ(backward_graph.nodes(), size.m == 0 && !sums ? none : one);
    }
  }
}

TEST(CudaGraph, ReplaysFollowTheirInputs) {
  TN_NEEDS_CUDA();
  const Stream stream;
  for (const Size size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    Arena arena;
    Rng rng(17);
    tn_backward_args args = random_backward(rng, arena, size, TN_BF16);
    DeviceCopy copies[2] = {DeviceCopy(arena), DeviceCopy(arena)};
    const DeviceWorkspace workspace(args);
    const Graph graph(stream.get(), [&] {  // in a row: the counters are as they were
      for (const DeviceCopy& copy : copies) enqueue(copy.moved(args), workspace, stream.get());
    });
    for (int i = 0; i < 4; ++i) {
      for (const tn_tensor& t : {args.dy, args.s, args.weight}) {
        if (!absent(t)) fill(t, rng, Fill::normal);
      }
      const BackwardBits expected = on_cpu(args);
      spoil_outputs(args);
      for (DeviceCopy& copy : copies) copy.upload();
      require(cudaDeviceSynchronize());
      graph.replay(stream.get());
      for (DeviceCopy& copy : copies) {
        copy.download();
        expect_bits(args, expected);
      }
    }
    EXPECT_TRUE(workspace.left_well());
  }
}

// Launches that may all wait for thread blocks of their own, on many streams: none may wait for ever.
TEST(CudaGraph, ManyAtOnceFinish) {
  TN_NEEDS_CUDA();
  constexpr int kStreams = 8;
  std::vector<Stream> streams(kStreams);
  for (const Size size : {Size{2048, 4096}, {1024, 8192}, {4096, 768}, {500, 18432}}) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    Rng rng(5);
    Arena arena;
    const tn_backward_args args = random_backward(rng, arena, size, TN_BF16);
    const BackwardBits expected = on_cpu(args);
    spoil_outputs(args);
    std::vector<std::unique_ptr<DeviceCopy>> copies;
    std::vector<std::unique_ptr<DeviceWorkspace>> workspaces;
    for (int i = 0; i < kStreams; ++i) {
      copies.push_back(std::make_unique<DeviceCopy>(arena));
      copies.back()->upload();
      workspaces.push_back(std::make_unique<DeviceWorkspace>(args));
    }
    require(cudaDeviceSynchronize());
    for (int k = 0; k < 200; ++k) {
      const auto i = static_cast<std::size_t>(k % kStreams);
      enqueue(copies[i]->moved(args), *workspaces[i], streams[i].get());
    }
    require(cudaDeviceSynchronize());
    for (int i = 0; i < kStreams; ++i) {
      copies[static_cast<std::size_t>(i)]->download();
      expect_bits(args, expected);
      EXPECT_TRUE(workspaces[static_cast<std::size_t>(i)]->left_well());
    }
  }
}

}  // namespace
}  // namespace truenorm::test
