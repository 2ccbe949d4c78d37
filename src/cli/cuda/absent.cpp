// A build without CUDA: there are no devices, and Executor refuses them before anything else here is called.
#include <stdexcept>

#include "cli/cuda/copy.hpp"
#include "cli/cuda/device.hpp"
#include "cli/cuda/timing.hpp"

namespace truenorm::cli {
namespace {

[[noreturn]] void absent() { throw std::logic_error("this build has no CUDA backend"); }

}  // namespace

std::vector<CudaDevice> cuda_devices() { return {}; }
void choose_cuda_device(int32_t) { absent(); }
CudaDevice chosen_cuda_device() { absent(); }
size_t free_device_memory() { absent(); }
void synchronize_device() { absent(); }
void upload(std::byte*, const std::byte*, size_t) { absent(); }
void download(std::byte*, const std::byte*, size_t) { absent(); }
void copy_on_device(std::byte*, const std::byte*, size_t) { absent(); }
void zero_on_device(std::byte*, size_t) { absent(); }

DeviceMemory::DeviceMemory(size_t) { absent(); }
void DeviceMemory::Free::operator()(std::byte*) const {}

DeviceStream::DeviceStream() { absent(); }
void DeviceStream::synchronize() const { absent(); }
void DeviceStream::Destroy::operator()(void*) const {}
DeviceGraph::DeviceGraph(const DeviceStream& stream, const std::function<void()>&) : stream_(stream.get()) { absent(); }
void DeviceGraph::replay() const { absent(); }
void DeviceGraph::Destroy::operator()(void*) const {}
DeviceTimer::DeviceTimer(const DeviceStream& stream) : stream_(stream) { absent(); }
double DeviceTimer::seconds(const std::function<void()>&, int) const {
  stream_.synchronize();
  absent();
}
void DeviceTimer::Destroy::operator()(void*) const {}
void copy_on_stream(const CopySet&, int, const DeviceStream&) { absent(); }

}  // namespace truenorm::cli
