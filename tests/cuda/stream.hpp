// Streams and graphs of tests.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "cuda/device.hpp"

namespace truenorm::test {

class Stream {
 public:
  Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Graph {
 public:
  template <class Work>
  Graph(cudaStream_t stream, const Work& work) {
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    require(cudaStreamEndCapture(stream, &graph_));
    require(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::vector<cudaGraphNodeType> nodes() const {
    std::size_t count = 0;
    require(cudaGraphGetNodes(graph_, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    require(cudaGraphGetNodes(graph_, nodes.data(), &count));
    std::vector<cudaGraphNodeType> types(count);
    for (std::size_t i = 0; i < count; ++i) require(cudaGraphNodeGetType(nodes[i], &types[i]));
    return types;
  }
  std::vector<cudaGraphEdgeData> edges() const {
    const auto get = [&](cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data, std::size_t& count) {
#if CUDART_VERSION >= 13000
      require(cudaGraphGetEdges(graph_, from, to, data, &count));
#else
      require(cudaGraphGetEdges_v2(graph_, from, to, data, &count));
#endif
    };
    std::size_t count = 0;
    get(nullptr, nullptr, nullptr, count);
    std::vector<cudaGraphNode_t> from(count), to(count);
    std::vector<cudaGraphEdgeData> edges(count);
    if (count > 0) get(from.data(), to.data(), edges.data(), count);
    return edges;
  }
  void replay(cudaStream_t stream) const { require(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace truenorm::test
