// Launches that may begin while the one before is ending (tn_exec.programmatic): chains of calls in which each takes
// what the one before it wrote, and writes what an earlier one read.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cuda/check.hpp"
#include "cuda/device.hpp"
#include "cuda/stream.hpp"
#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {
namespace {

tn_exec programmatic_on(cudaStream_t stream) {
  tn_exec exec = on_device(stream);
  exec.programmatic = 1;
  return exec;
}

bool has_dependent_launch() {
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return major >= 9;
}

// A round of three calls: a forward; a second one, of what the first wrote, and its input as the residual; a backward,
// whose gradients are the next round's input and weight. So no round has the data of another.
struct Chain {
  Chain(tn_op op, Size size, tn_dtype type, bool in_place);

  // The CPU's results of so many rounds from the input and weight as they are, which stay; all else is spoiled.
  void solve(int rounds);
  void expect_results() const;
  void enqueue_on(const DeviceCopy& copy, const DeviceWorkspace& workspace, const tn_exec& exec) const;

  std::vector<tn_tensor> written() const;

  Arena arena;
  tn_forward_args first, second;
  tn_backward_args last;
  std::vector<Bits> expected;
};

Chain::Chain(tn_op op, Size size, tn_dtype type, bool in_place)
    : first(forward_args(op)), second(forward_args(op)), last(backward_args(op)) {
  const auto [m, n] = size;
  Rng rng(static_cast<std::uint64_t>(m * 1000003 + n));
  first.x = arena.matrix(type, m, n);
  first.weight = arena.vector(TN_F32, n);
  first.y = arena.matrix(type, m, n);
  first.rstd = arena.vector(TN_F32, m);
  second.x = first.y;
  second.residual = first.x;
  second.weight = arena.vector(type, n);
  second.bias = arena.vector(type, n);
  second.y = in_place ? first.x : arena.matrix(type, m, n);
  second.residual_out = arena.matrix(type, m, n);
  second.rstd = arena.vector(TN_F32, m);
  second.in_place = in_place ? TN_Y_OVER_RESIDUAL : 0;
  if (op == TN_LAYER_NORM) {
    first.mean = arena.vector(TN_F32, m);
    second.mean = arena.vector(TN_F32, m);
  }
  last.dy = second.y;
  last.s = second.residual_out;
  last.weight = second.weight;
  last.mean = second.mean;
  last.rstd = second.rstd;
  last.dx = first.x;
  last.dweight = first.weight;
  if (op == TN_LAYER_NORM) last.dbias = arena.vector(TN_F32, n);
  last.in_place = in_place ? TN_DX_OVER_DY : 0;
  for (const tn_tensor& t : {first.x, first.weight, second.weight, second.bias}) fill(t, rng, Fill::normal);
}

std::vector<tn_tensor> Chain::written() const {
  std::vector<tn_tensor> all;
  for (const tn_tensor& t : {first.y, first.mean, first.rstd, second.y, second.residual_out, second.mean, second.rstd,
                             last.dx, last.dweight, last.dbias}) {
    if (!absent(t)) all.push_back(t);
  }
  return all;
}

void Chain::solve(int rounds) {
  const Bits input = read_bits(first.x), weight = read_bits(first.weight);
  for (int i = 0; i < rounds; ++i) {
    const Bits y = read_bits(first.y), dx = read_bits(first.x);
    forward(first, on(TN_ISA_AUTO, shared_pool(7)));
    forward(second, on(TN_ISA_AUTO, shared_pool(7)));
    backward(last, on(TN_ISA_AUTO, shared_pool(7)));
    // Else a call that reads what is left of the round before could be right.
    EXPECT_NE(read_bits(first.y), y);
    EXPECT_NE(read_bits(last.dx), dx);
  }
  // All first: in place, several of them are names of the same memory.
  expected.clear();
  for (const tn_tensor& t : written()) expected.push_back(read_bits(t));
  for (const tn_tensor& t : written()) spoil(t);
  write_bits(first.x, input);
  write_bits(first.weight, weight);
}

void Chain::expect_results() const {
  const std::vector<tn_tensor> got = written();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(equal_bits(got[i], expected[i])) << "tensor " << i;
}

void Chain::enqueue_on(const DeviceCopy& copy, const DeviceWorkspace& workspace, const tn_exec& exec) const {
  enqueue(copy.moved(first), exec);
  enqueue(copy.moved(second), exec);
  enqueue(copy.moved(last), workspace, exec);
}

struct Case {
  Size size;
  tn_dtype type = TN_BF16;
  tn_op op = TN_RMS_NORM;
};

// Every kernel: rows and columns apart, strips of each kind of team, rows that start anywhere, rows for no registers.
constexpr Case kCases[] = {{{1, 4096}},
                           {{128, 4096}, TN_BF16, TN_LAYER_NORM},
                           {{64, 4097}},
                           {{5000, 128}},
                           {{600, 1024}, TN_BF16, TN_LAYER_NORM},
                           {{600, 2048}},
                           {{300, 4096}, TN_F32},
                           {{300, 4097}, TN_BF16, TN_LAYER_NORM},
                           {{300, 8192}},
                           {{20, 65544}, TN_BF16, TN_LAYER_NORM}};

std::string name_of(const Case& c, bool in_place) {
  return name_of(c.size) + tn_dtype_name(c.type) + (in_place ? "in_place" : "apart");
}

class CudaProgrammatic : public testing::TestWithParam<std::tuple<Case, bool>> {
 protected:
  std::unique_ptr<Chain> make_chain() {
    const auto& [tested, in_place] = GetParam();
    return std::make_unique<Chain>(tested.op, tested.size, tested.type, in_place);
  }
};

TEST_P(CudaProgrammatic, ManyRoundsGiveTheCpusBits) {
  TN_NEEDS_CUDA();
  const Stream stream;
  const auto chain = make_chain();
  DeviceCopy copy(chain->arena);
  const DeviceWorkspace workspace(chain->last);
  for (const int rounds : {1, 2, 30}) {
    chain->solve(rounds);
    copy.upload();
    require(cudaDeviceSynchronize());
    for (int i = 0; i < rounds; ++i) chain->enqueue_on(copy, workspace, programmatic_on(stream.get()));
    copy.download();
    chain->expect_results();
    EXPECT_TRUE(workspace.left_well());
  }
}

TEST_P(CudaProgrammatic, ReplaysFollowTheirInputs) {
  TN_NEEDS_CUDA();
  constexpr int kRounds = 2, kReplays = 20, kInARow = 20;
  const Stream stream;
  const auto chain = make_chain();
  DeviceCopy copy(chain->arena);
  const DeviceWorkspace workspace(chain->last);
  const Graph graph(stream.get(), [&] {
    // What comes before the first call is no kernel.
    const tn_tensor y = copy.moved(chain->first.y);
    const auto bytes = static_cast<std::size_t>(rows_of(y) * columns_of(y)) * tn_dtype_size(y.dtype);
    require(cudaMemsetAsync(y.data, 0xff, bytes, stream.get()));
    for (int i = 0; i < kRounds; ++i) chain->enqueue_on(copy, workspace, programmatic_on(stream.get()));
  });
  std::vector<cudaGraphNodeType> nodes = graph.nodes();
  EXPECT_EQ(nodes.size(), 1 + 3 * kRounds);
  EXPECT_EQ(std::count(nodes.begin(), nodes.end(), cudaGraphNodeTypeKernel), 3 * kRounds);
  const auto check = [&](int replays) {
    chain->solve(replays * kRounds);
    copy.upload();
    require(cudaDeviceSynchronize());
    for (int i = 0; i < replays; ++i) graph.replay(stream.get());
    copy.download();
    chain->expect_results();
  };
  // Each goes on from where the one before ended.
  for (int i = 0; i < kReplays && !HasFailure(); ++i) check(1);
  check(kInARow);
  EXPECT_TRUE(workspace.left_well());
}
INSTANTIATE_TEST_SUITE_P(Chain, CudaProgrammatic, testing::Combine(testing::ValuesIn(kCases), testing::Bool()),
                         [](const auto& tested) {
                           return name_of(std::get<0>(tested.param), std::get<1>(tested.param));
                         });

// That the option does what it says: calls of which no thread block waits for another depend programmatically.
TEST(CudaProgrammaticGraph, DependenciesAreProgrammatic) {
  TN_NEEDS_CUDA();
  if (!has_dependent_launch()) GTEST_SKIP() << "a device before sm_90: nothing was checked";
  const Stream stream;
  for (const Size size : {Size{128, 4096}, Size{2048, 4096}}) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto chain = std::make_unique<Chain>(TN_RMS_NORM, size, TN_BF16, false);
    const DeviceCopy copy(chain->arena);
    const DeviceWorkspace workspace(chain->last);
    const auto programmatic = [&](const tn_exec& exec) {
      const Graph graph(stream.get(), [&] { chain->enqueue_on(copy, workspace, exec); });
      const std::vector<cudaGraphEdgeData> edges = graph.edges();
      EXPECT_EQ(edges.size(), 2u);
      return std::count_if(edges.begin(), edges.end(), [](const cudaGraphEdgeData& edge) {
        return edge.type == cudaGraphDependencyTypeProgrammatic;
      });
    };
    EXPECT_EQ(programmatic(on_device(stream.get())), 0);
    // The last is a cooperative launch in the larger case, which begins as usual.
    EXPECT_EQ(programmatic(programmatic_on(stream.get())), size.m == 128 ? 2 : 1);
  }
}

// Launches that wait for thread blocks of their own, while others that began early hold places: none waits for ever.
TEST(CudaProgrammaticStreams, ManyAtOnceFinish) {
  TN_NEEDS_CUDA();
  constexpr int kStreams = 8, kRounds = 12;
  const std::vector<Stream> streams(kStreams);
  for (const Size size : {Size{2048, 4096}, {1024, 8192}, {4096, 768}, {128, 4096}}) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto chain = std::make_unique<Chain>(TN_RMS_NORM, size, TN_BF16, false);
    chain->solve(kRounds);
    std::vector<std::unique_ptr<DeviceCopy>> copies;
    std::vector<std::unique_ptr<DeviceWorkspace>> workspaces;
    for (int i = 0; i < kStreams; ++i) {
      copies.push_back(std::make_unique<DeviceCopy>(chain->arena));
      copies.back()->upload();
      workspaces.push_back(std::make_unique<DeviceWorkspace>(chain->last));
    }
    require(cudaDeviceSynchronize());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kStreams; ++i) {
        chain->enqueue_on(*copies[i], *workspaces[i], programmatic_on(streams[i].get()));
      }
    }
    require(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < kStreams; ++i) {
      copies[i]->download();
      chain->expect_results();
      EXPECT_TRUE(workspaces[i]->left_well());
    }
  }
}

}  // namespace
}  // namespace truenorm::test
