#include "cli/cuda/device.hpp"

#include <new>

#include "cli/cuda/check.hpp"

namespace truenorm::cli {
namespace {

CudaDevice describe_device(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "asking what a device is");
  CudaDevice device;
  device.name = properties.name;
  device.major = properties.major;
  device.minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.memory_bytes = properties.totalGlobalMem;
  device.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  device.shared_bytes = properties.sharedMemPerBlockOptin;
  return device;
}

}  // namespace

std::vector<CudaDevice> cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // not to be found by the next caller
    return {};
  }
  std::vector<CudaDevice> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) devices.push_back(describe_device(i));
  return devices;
}

void choose_cuda_device(int32_t index) { check_cuda(cudaSetDevice(index), "choosing a device"); }

CudaDevice chosen_cuda_device() {
  int index = 0;
  check_cuda(cudaGetDevice(&index), "asking which device is chosen");
  return describe_device(index);
}

size_t free_device_memory() {
  size_t free = 0;
  size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for the free memory");
  return free;
}

void synchronize_device() { check_cuda(cudaDeviceSynchronize(), "waiting for the device"); }

// cudaMemcpy between devices, and cudaMemset, may return before they have finished, and streams that do not block on
// the default one would not wait for them.
void upload(std::byte* device, const std::byte* host, size_t size) {
  check_cuda(cudaMemcpy(device, host, size, cudaMemcpyHostToDevice), "copying to the device");
  synchronize_device();
}

void download(std::byte* host, const std::byte* device, size_t size) {
  check_cuda(cudaMemcpy(host, device, size, cudaMemcpyDeviceToHost), "copying from the device");
}

void copy_on_device(std::byte* to, const std::byte* from, size_t size) {
  check_cuda(cudaMemcpy(to, from, size, cudaMemcpyDeviceToDevice), "copying on the device");
  synchronize_device();
}

void zero_on_device(std::byte* device, size_t size) {
  check_cuda(cudaMemset(device, 0, size), "zeroing memory of the device");
  synchronize_device();
}

DeviceMemory::DeviceMemory(size_t size) : size_(size) {
  if (size == 0) return;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, size);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw std::bad_alloc();
  }
  check_cuda(error, "taking memory of the device");
  data_.reset(static_cast<std::byte*>(data));
}

void DeviceMemory::Free::operator()(std::byte* data) const { cudaFree(data); }

}  // namespace truenorm::cli
