#include "cli/cuda/timing.hpp"

#include <span>

#include "cli/cuda/check.hpp"
#include "cli/cuda/copy.hpp"

namespace truenorm::cli {
namespace {

cudaStream_t stream_of(const DeviceStream& stream) { return static_cast<cudaStream_t>(stream.get()); }

void* make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "making an event");
  return event;
}

}  // namespace

DeviceStream::DeviceStream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.reset(stream);
}

void DeviceStream::synchronize() const { check_cuda(cudaStreamSynchronize(stream_of(*this)), "waiting for a stream"); }

void DeviceStream::Destroy::operator()(void* stream) const { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

DeviceGraph::DeviceGraph(const DeviceStream& stream, const std::function<void()>& enqueue) : stream_(stream.get()) {
  check_cuda(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "capturing a graph");
  enqueue();
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream_of(stream), &graph), "capturing a graph");
  cudaGraphExec_t ready = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, "making a graph ready");
  graph_.reset(ready);
  check_cuda(cudaGraphUpload(ready, stream_of(stream)), "making a graph ready");
}

void DeviceGraph::replay() const {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_.get()), static_cast<cudaStream_t>(stream_)),
             "replaying a graph");
}

void DeviceGraph::Destroy::operator()(void* graph) const { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

DeviceTimer::DeviceTimer(const DeviceStream& stream)
    : stream_(stream), flushed_(chosen_cuda_device().l2_bytes / 64 * 64 * 4), begin_(make_event()), end_(make_event()) {
  zero_on_device(flushed_.data(), flushed_.size());
}

double DeviceTimer::seconds(const std::function<void()>& enqueue, int flushes) const {
  const size_t half = flushed_.size() / 2;
  const CopySet flush{{std::span<const std::byte>(flushed_.data(), half)},
                      {std::span<std::byte>(flushed_.data() + half, half)}};
  const auto begin = static_cast<cudaEvent_t>(begin_.get());
  const auto end = static_cast<cudaEvent_t>(end_.get());
  for (int i = 0; i < flushes; ++i) copy_on_stream(flush, kCopyVectors.back(), stream_);
  check_cuda(cudaEventRecord(begin, stream_of(stream_)), "recording an event");
  enqueue();
  check_cuda(cudaEventRecord(end, stream_of(stream_)), "recording an event");
  check_cuda(cudaEventSynchronize(end), "waiting for the device");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "asking for a time");
  return static_cast<double>(milliseconds) * 1e-3;
}

void DeviceTimer::Destroy::operator()(void* event) const { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

}  // namespace truenorm::cli
