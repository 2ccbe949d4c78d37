#include "counters.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

namespace truenorm::binding {

namespace {

constexpr std::size_t kSlotBytes = 128;       // a cache line of its own
constexpr std::size_t kSlabBytes = 64 << 10;  // 512 slots

// What a capture elsewhere in the process forbids (allocating, waiting) is allowed inside, on this thread.
class Relaxed {
 public:
  Relaxed() { C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~Relaxed() { C10_CUDA_CHECK_WARN(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A device's slots. Memory is taken from CUDA itself, zeroed on a stream of its own, and never given back: graphs keep
// its address.
class Slots {
 public:
  void* next() {
    if (left_ < kSlotBytes) refill();
    left_ -= kSlotBytes;
    return slab_ + left_;
  }

 private:
  void refill() {
    const Relaxed relaxed;
    void* memory = nullptr;
    cudaStream_t side = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&memory, kSlabBytes));
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    C10_CUDA_CHECK(cudaMemsetAsync(memory, 0, kSlabBytes, side));
    C10_CUDA_CHECK(cudaStreamSynchronize(side));
    C10_CUDA_CHECK(cudaStreamDestroy(side));
    slab_ = static_cast<char*>(memory);
    left_ = kSlabBytes;
  }

  char* slab_ = nullptr;
  std::size_t left_ = 0;
};

struct Shared {
  std::mutex mutex;
  std::map<c10::DeviceIndex, Slots> slots;
  // By the stream's number, not its handle, which a later stream may have again while this one's work still runs.
  std::map<std::pair<c10::DeviceIndex, unsigned long long>, void*> of_stream;
};

// Never destroyed: launches may still come while the process ends.
Shared& shared() {
  static auto* instance = new Shared;
  return *instance;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void* zeroed_counters(std::size_t bytes, const at::Device& device, void* stream_) {
  TORCH_INTERNAL_ASSERT(bytes <= kSlotBytes);
  auto* stream = static_cast<cudaStream_t>(stream_);
  const bool own = capturing(stream);
  unsigned long long number = 0;
  if (!own) C10_CUDA_CHECK(cudaStreamGetId(stream, &number));
  const std::lock_guard lock(shared().mutex);
  Slots& slots = shared().slots[device.index()];
  if (own) return slots.next();
  void*& slot = shared().of_stream[{device.index(), number}];
  if (slot == nullptr) slot = slots.next();
  return slot;
}

}  // namespace truenorm::binding
