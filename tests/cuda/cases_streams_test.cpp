// Faults of published libraries: work on the wrong stream or device, scratch that calls share, threads without a
// context.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/problem.hpp"
#include "cuda/stream.hpp"

namespace truenorm::test {
namespace {

constexpr Size kSizes[] = {{600, 1024}, {128, 4096}, {260, 2048}, {3000, 128}, {66, 8192}, {40, 4097}};

// ---- A training step as one graph

TEST(CudaCases_Streams, ForwardAndBackwardInAGraphFollowTheirInputs) {
  TN_NEEDS_CUDA();
  const Stream stream;
  for (const Size size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto p = std::make_unique<Problem>(TN_LAYER_NORM, size, TN_BF16, 40);
    DeviceCopy copy(p->arena);
    const DeviceWorkspace workspace(p->backward_call);
    const Graph graph(stream.get(), [&] {
      enqueue(copy.moved(p->forward_call), stream.get());
      enqueue(copy.moved(p->backward_call), workspace, stream.get());
    });
    Rng rng(41);
    for (int replay = 0; replay < 3; ++replay) {
      const tn_forward_args& f = p->forward_call;
      for (const tn_tensor& t : {f.x, f.residual, f.weight, p->backward_call.dy}) fill(t, rng, Fill::normal);
      p->solve();
      p->spoil_results();
      copy.upload();
      require(cudaDeviceSynchronize());
      graph.replay(stream.get());
      copy.download();
      p->expect_results();
    }
  }
}

// ---- A producer that is late

struct Late {
  void* to;
  const void* from;
  std::size_t size;
};

// Runs on a stream, long after the calls behind it have been enqueued.
void arrive(void* data) {
  const auto& late = *static_cast<const Late*>(data);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::memcpy(late.to, late.from, late.size);
}

TEST(CudaCases_Streams, CallsWaitForASlowProducerOnTheirStream) {
  TN_NEEDS_CUDA();
  const Stream stream;
  for (const Size size : {Size{600, 1024}, Size{12, 4097}}) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto p = std::make_unique<Problem>(TN_RMS_NORM, size, TN_BF16, 42);
    DeviceCopy copy(p->arena);
    const DeviceWorkspace workspace(p->backward_call);
    const tn_forward_args f = copy.moved(p->forward_call);
    const std::size_t bytes = static_cast<std::size_t>(size.m * size.n) * 2;
    void* arriving = nullptr;
    require(cudaHostAlloc(&arriving, bytes, cudaHostAllocDefault));
    Late late{arriving, p->forward_call.x.data, bytes};
    p->spoil_results();
    copy.upload();
    require(cudaMemset(f.x.data, 0, bytes));
    require(cudaDeviceSynchronize());
    require(cudaLaunchHostFunc(stream.get(), arrive, &late));
    require(cudaMemcpyAsync(f.x.data, arriving, bytes, cudaMemcpyHostToDevice, stream.get()));
    enqueue(f, stream.get());
    enqueue(copy.moved(p->backward_call), workspace, stream.get());
    copy.download();
    p->expect_results();
    require(cudaFreeHost(arriving));
  }
}

// ---- Several host threads, each with a stream and scratch of its own

// What one thread does over and over: all sizes, on its stream, then a look at the results.
class Worker {
 public:
  explicit Worker(int number) {
    for (const Size size : kSizes) {
      const tn_op op = (number + static_cast<int>(problems_.size())) % 2 == 0 ? TN_RMS_NORM : TN_LAYER_NORM;
      auto& p = problems_.emplace_back(std::make_unique<Problem>(op, size, TN_BF16, 50 + number));
      p->forward_call.offset = p->backward_call.offset = static_cast<float>(number % 2);  // the same N with both
      p->solve();
      copies_.push_back(std::make_unique<DeviceCopy>(p->arena));
      workspaces_.push_back(std::make_unique<DeviceWorkspace>(p->backward_call));
    }
  }

  // The first thing that a thread does with the device is a call of ours.
  void work() {
    for (int round = 0; round < 4; ++round) {
      for (int again = 0; again < 5; ++again) {
        for (std::size_t i = 0; i < problems_.size(); ++i) {
          enqueue(copies_[i]->moved(problems_[i]->forward_call), stream_.get());
          enqueue(copies_[i]->moved(problems_[i]->backward_call), *workspaces_[i], stream_.get());
        }
      }
      require(cudaStreamSynchronize(stream_.get()));
      for (std::size_t i = 0; i < problems_.size(); ++i) {
        copies_[i]->download();
        problems_[i]->expect_results();
      }
      prepare();
    }
  }

  void prepare() const {
    for (const auto& problem : problems_) problem->spoil_results();
    for (const auto& copy : copies_) copy->upload();
    require(cudaStreamSynchronize(nullptr));  // our own stream would not wait for it
  }
  void expect_well() const {
    for (const auto& workspace : workspaces_) EXPECT_TRUE(workspace->left_well());
  }

 private:
  Stream stream_;
  std::vector<std::unique_ptr<Problem>> problems_;
  std::vector<std::unique_ptr<DeviceCopy>> copies_;
  std::vector<std::unique_ptr<DeviceWorkspace>> workspaces_;
};

TEST(CudaCases_Streams, SeveralHostThreadsAtOnce) {
  TN_NEEDS_CUDA();
  constexpr int kThreads = 6;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < kThreads; ++i) {
    workers.push_back(std::make_unique<Worker>(i));
    workers.back()->prepare();
  }
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&worker] {
      try {
        worker->work();
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& worker : workers) worker->expect_well();
}

// Different calls at once on streams of one thread, in every pair of sizes.
TEST(CudaCases_Streams, DifferentCallsOnTwoStreams) {
  TN_NEEDS_CUDA();
  const Stream streams[2];
  std::vector<std::unique_ptr<Problem>> problems;
  std::vector<std::unique_ptr<DeviceCopy>> copies;
  std::vector<std::unique_ptr<DeviceWorkspace>> workspaces;
  for (const Size size : kSizes) {
    const auto& p = problems.emplace_back(std::make_unique<Problem>(TN_RMS_NORM, size, TN_F16, 43));
    copies.push_back(std::make_unique<DeviceCopy>(p->arena));
    workspaces.push_back(std::make_unique<DeviceWorkspace>(p->backward_call));
  }
  for (std::size_t a = 0; a < problems.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      SCOPED_TRACE(testing::Message() << "sizes " << a << " and " << b);
      for (const std::size_t i : {a, b}) {
        problems[i]->spoil_results();
        copies[i]->upload();
      }
      require(cudaDeviceSynchronize());
      for (int k = 0; k < 10; ++k) {
        for (const std::size_t i : {a, b}) {
          const cudaStream_t stream = streams[i == a ? 0 : 1].get();
          enqueue(copies[i]->moved(problems[i]->forward_call), stream);
          enqueue(copies[i]->moved(problems[i]->backward_call), *workspaces[i], stream);
        }
      }
      for (const std::size_t i : {a, b}) {
        copies[i]->download();
        problems[i]->expect_results();
        EXPECT_TRUE(workspaces[i]->left_well());
      }
    }
  }
}

// ---- Another device than the current one

TEST(CudaCases_Streams, TensorsOnDeviceOneWhileDeviceZeroIsCurrent) {
  TN_NEEDS_CUDA();
  if (tn_device_count(TN_CUDA) < 2) GTEST_SKIP() << "one CUDA device: nothing was checked on a second";
  for (const Size size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto p = std::make_unique<Problem>(TN_RMS_NORM, size, TN_BF16, 44);
    require(cudaSetDevice(1));
    const auto stream = std::make_unique<Stream>();
    const auto copy = std::make_unique<DeviceCopy>(p->arena);
    const DeviceWorkspace workspace(p->backward_call, 1);
    p->spoil_results();
    copy->upload();
    require(cudaDeviceSynchronize());
    require(cudaSetDevice(0));
    tn_error error;
    const tn_exec exec = on_device(stream->get(), 1);
    const tn_forward_args f = copy->moved(p->forward_call);
    const tn_backward_args b = copy->moved(p->backward_call);
    EXPECT_EQ(tn_forward(&exec, &f, nullptr, &error), TN_OK) << error.message;
    EXPECT_EQ(tn_backward(&exec, &b, &workspace.get(), &error), TN_OK) << error.message;
    int current = -1;
    require(cudaGetDevice(&current));
    EXPECT_EQ(current, 0);
    require(cudaSetDevice(1));
    copy->download();
    p->expect_results();
    EXPECT_TRUE(workspace.left_well());
    require(cudaSetDevice(0));
  }
}

}  // namespace
}  // namespace truenorm::test
