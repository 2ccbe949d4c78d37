#include "cuda/launch/launch.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <tuple>

namespace truenorm::cuda {

namespace {

constexpr int kMostDevices = 64;
constexpr std::size_t kDefaultShared = 48 << 10;  // what a kernel may have without being told

const char* sentence(cudaError_t e) {
  if (e == cudaSuccess) return nullptr;
  cudaGetLastError();  // not to be found by the next caller
  return cudaGetErrorString(e);
}

struct Known {
  std::once_flag once;
  Device device;
  cudaError_t error = cudaSuccess;
};

Known& known(int index) {
  static std::array<Known, kMostDevices> all;
  return all[static_cast<std::size_t>(index)];
}

cudaError_t ask(int index, Device& device) {
  int value = 0;
  const auto get = [&](cudaDeviceAttr attribute, auto& to) {
    const cudaError_t e = cudaDeviceGetAttribute(&value, attribute, index);
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
    return e;
  };
  if (const auto e = get(cudaDevAttrMultiProcessorCount, device.multiprocessors); e != cudaSuccess) return e;
  if (const auto e = get(cudaDevAttrComputeCapabilityMajor, device.major); e != cudaSuccess) return e;
  if (const auto e = get(cudaDevAttrComputeCapabilityMinor, device.minor); e != cudaSuccess) return e;
  return get(cudaDevAttrMaxSharedMemoryPerBlockOptin, device.shared_bytes);
}

// How many thread blocks of a launch fit on the device. Asking takes the runtime longer than a launch, so answers are
// kept, by each thread for itself.
const char* resident_blocks(const Launch& what, int device, cudaLaunchConfig_t config, std::int64_t& blocks) {
  using Key = std::tuple<const void*, int, std::size_t, int, int>;
  thread_local std::map<Key, std::int64_t> answers;
  const Key key{what.kernel, what.threads, what.shared_bytes, what.cluster, device};
  if (const auto found = answers.find(key); found != answers.end()) {
    blocks = found->second;
    return nullptr;
  }
  if (what.cluster > 1) {
    int clusters = 0;
    config.gridDim = dim3(static_cast<unsigned>(what.cluster));
    if (const auto e = cudaOccupancyMaxActiveClusters(&clusters, what.kernel, &config); e != cudaSuccess) {
      return sentence(e);
    }
    blocks = std::int64_t{clusters} * what.cluster;
  } else {
    int each = 0;
    const auto e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, what.kernel, what.threads, what.shared_bytes);
    if (e != cudaSuccess) return sentence(e);
    const char* error = nullptr;
    const Device* const d = device_of(device, error);
    if (d == nullptr) return error;
    blocks = std::int64_t{each} * d->multiprocessors;
  }
  if (blocks == 0) return "no thread block of this kernel fits on the device";
  answers[key] = blocks;
  return nullptr;
}

}  // namespace

bool compiled() { return true; }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return std::min(count, kMostDevices);
}

const Device* device_of(int index, const char*& error) {
  Known& k = known(index);
  std::call_once(k.once, [&] { k.error = ask(index, k.device); });
  error = sentence(k.error);
  return error == nullptr ? &k.device : nullptr;
}

DeviceGuard::DeviceGuard(int device) {
  int current = 0;
  error_ = sentence(cudaGetDevice(&current));
  if (error_ != nullptr || current == device) return;
  error_ = sentence(cudaSetDevice(device));
  if (error_ == nullptr) before_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) cudaSetDevice(before_);
}

const char* enqueue(const Launch& what, const Where& where, void** arguments) {
  const DeviceGuard guard(where.device);
  if (guard.error() != nullptr) return guard.error();
  const char* error = nullptr;
  const Device* const device = device_of(where.device, error);
  if (device == nullptr) return error;
  if (what.shared_bytes > kDefaultShared) {
    // As much as there is, so that launches by several threads of the host do not lower it for each other.
    const cudaError_t e = cudaFuncSetAttribute(what.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(device->shared_bytes));
    if (e != cudaSuccess) return sentence(e);
  }
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(static_cast<unsigned>(what.threads));
  config.dynamicSmemBytes = what.shared_bytes;
  config.stream = static_cast<cudaStream_t>(where.stream);
  std::array<cudaLaunchAttribute, 2> attributes{};
  config.attrs = attributes.data();
  const auto attribute = [&](cudaLaunchAttributeID id) -> cudaLaunchAttribute& {
    attributes[config.numAttrs].id = id;
    return attributes[config.numAttrs++];
  };
  std::int64_t blocks = what.blocks;
  if (what.cluster > 1) {
    auto& dim = attribute(cudaLaunchAttributeClusterDimension).val.clusterDim;
    dim.x = static_cast<unsigned>(what.cluster);
    dim.y = dim.z = 1;
  }
  if (what.residence != Residence::kAny) {
    std::int64_t most = 0;
    error = resident_blocks(what, where.device, config, most);
    if (error != nullptr) return error;
    // All that fit, even where fewer would each have as much to do: then all multiprocessors have as many.
    blocks = std::min(blocks, most);
    if (what.residence == Residence::kSure) attribute(cudaLaunchAttributeCooperative).val.cooperative = 1;
  }
  // Not thread blocks that wait for each other: some of them might hold places early while others of another stream's
  // do, each waiting for places that the other holds.
  if (where.programmatic && what.residence != Residence::kSure && device->major >= 9) {
    attribute(cudaLaunchAttributeProgrammaticStreamSerialization).val.programmaticStreamSerializationAllowed = 1;
  }
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  cudaError_t e = cudaLaunchKernelExC(&config, what.kernel, arguments);
  // A share of the device (MPS, a green context) may hold fewer than the device would: any number does the work.
  while (e == cudaErrorCooperativeLaunchTooLarge && config.gridDim.x > static_cast<unsigned>(what.cluster)) {
    cudaGetLastError();
    const auto clusters = config.gridDim.x / static_cast<unsigned>(what.cluster);
    config.gridDim.x = (clusters + 1) / 2 * static_cast<unsigned>(what.cluster);
    if (clusters == 1) break;
    e = cudaLaunchKernelExC(&config, what.kernel, arguments);
  }
  return sentence(e);
}

}  // namespace truenorm::cuda
