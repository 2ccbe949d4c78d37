// Streams, graphs and times of a CUDA device, without the CUDA runtime's own types.
#pragma once

#include <functional>
#include <memory>

#include "cli/cuda/device.hpp"

namespace truenorm::cli {

class DeviceStream {
 public:
  DeviceStream();
  void* get() const { return stream_.get(); }  // a cudaStream_t
  void synchronize() const;

 private:
  struct Destroy {
    void operator()(void* stream) const;
  };
  std::unique_ptr<void, Destroy> stream_;
};

// What `enqueue` puts on `stream`, captured to be replayed there. The stream must outlive it.
class DeviceGraph {
 public:
  DeviceGraph(const DeviceStream& stream, const std::function<void()>& enqueue);
  void replay() const;

 private:
  struct Destroy {
    void operator()(void* graph) const;
  };
  void* stream_;
  std::unique_ptr<void, Destroy> graph_;  // a cudaGraphExec_t
};

// Device time, by events around work on a stream, which must outlive it. Before each measurement a copy of twice the
// L2 cache passes, so that nothing of the inputs is left in there.
class DeviceTimer {
 public:
  explicit DeviceTimer(const DeviceStream& stream);
  // The copy is made `flushes` times: as long as that lasts, the host has to enqueue all of the work; a host that is
  // late would show as time of the device.
  double seconds(const std::function<void()>& enqueue, int flushes) const;

 private:
  struct Destroy {
    void operator()(void* event) const;
  };
  const DeviceStream& stream_;
  DeviceMemory flushed_;
  std::unique_ptr<void, Destroy> begin_;
  std::unique_ptr<void, Destroy> end_;
};

}  // namespace truenorm::cli
