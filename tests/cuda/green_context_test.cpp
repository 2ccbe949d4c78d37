// Calls that have a share of the device's multiprocessors, as under MPS or beside another model: the same bits, and
// none waits for thread blocks that cannot come. Green contexts belong to the driver's interface, which the runtime
// finds: nothing is linked for them.
#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>

#include "cuda/device.hpp"
#include "cuda/problem.hpp"

namespace truenorm::test {
namespace {

template <class Function>
bool find(Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t e = cudaGetDriverEntryPointByVersion(name, &found, CUDA_VERSION, cudaEnableDefault, &result);
  cudaGetLastError();
  function = reinterpret_cast<Function>(found);
  return e == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr;
}

// A driver that is older than this has none of them.
struct Driver {
  decltype(&cuDeviceGetDevResource) resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  decltype(&cuGreenCtxStreamCreate) stream = nullptr;

  bool found() {
    return find(resource, "cuDeviceGetDevResource") && find(split, "cuDevSmResourceSplitByCount") &&
           find(describe, "cuDevResourceGenerateDesc") && find(create, "cuGreenCtxCreate") &&
           find(destroy, "cuGreenCtxDestroy") && find(stream, "cuGreenCtxStreamCreate");
  }
};

// A stream on at least so many multiprocessors of device 0, and hardly more; null where that cannot be had.
class Share {
 public:
  Share(const Driver& driver, unsigned multiprocessors) : driver_(driver) {
    CUdevResource all{}, part{};
    CUdevResourceDesc description = nullptr;
    unsigned groups = 1;
    if (driver.resource(0, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) return;
    if (driver.split(&part, &groups, &all, nullptr, 0, multiprocessors) != CUDA_SUCCESS || groups != 1) return;
    if (driver.describe(&description, &part, 1) != CUDA_SUCCESS) return;
    if (driver.create(&context_, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS) return;
    if (driver.stream(&stream_, context_, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) stream_ = nullptr;
    multiprocessors_ = part.sm.smCount;
  }
  ~Share() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (context_ != nullptr) driver_.destroy(context_);
  }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  cudaStream_t stream() const { return stream_; }
  unsigned multiprocessors() const { return multiprocessors_; }

 private:
  const Driver& driver_;
  CUgreenCtx context_ = nullptr;
  CUstream stream_ = nullptr;
  unsigned multiprocessors_ = 0;
};

constexpr Size kSizes[] = {{3000, 128}, {2048, 768}, {600, 1024}, {128, 4096},
                           {700, 4096}, {300, 8192}, {66, 18432}, {40, 4097}};

class CudaGreenContext : public testing::TestWithParam<unsigned> {};

TEST_P(CudaGreenContext, SameBitsOnFewerMultiprocessors) {
  TN_NEEDS_CUDA();
  require(cudaFree(nullptr));  // which makes the device's context
  Driver driver;
  if (!driver.found()) GTEST_SKIP() << "the driver has no green contexts: nothing was checked";
  const Share share(driver, GetParam());
  if (share.stream() == nullptr) GTEST_SKIP() << "no green context could be had: nothing was checked";
  SCOPED_TRACE(testing::Message() << "on " << share.multiprocessors() << " multiprocessors");
  const Share other(driver, GetParam());  // another context, perhaps on the same multiprocessors
  for (const Size size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.m << " x " << size.n);
    const auto p = std::make_unique<Problem>(TN_LAYER_NORM, size, TN_BF16, 60);
    DeviceCopy copy(p->arena), busy(p->arena);
    const DeviceWorkspace workspace(p->backward_call), busy_workspace(p->backward_call);
    busy.upload();
    p->spoil_results();
    copy.upload();
    require(cudaDeviceSynchronize());
    for (int i = 0; i < 5; ++i) {
      if (other.stream() != nullptr) {
        enqueue(busy.moved(p->forward_call), other.stream());
        enqueue(busy.moved(p->backward_call), busy_workspace, other.stream());
      }
      enqueue(copy.moved(p->forward_call), share.stream());
      enqueue(copy.moved(p->backward_call), workspace, share.stream());
    }
    require(cudaStreamSynchronize(share.stream()));
    if (other.stream() != nullptr) require(cudaStreamSynchronize(other.stream()));
    copy.download();
    p->expect_results();
    EXPECT_TRUE(workspace.left_well());
    EXPECT_TRUE(busy_workspace.left_well());
  }
}
INSTANTIATE_TEST_SUITE_P(Multiprocessors, CudaGreenContext, testing::Values(8u, 16u, 40u, 100u));

}  // namespace
}  // namespace truenorm::test
