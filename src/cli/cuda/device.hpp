// CUDA devices and their memory, for the command. In a build without CUDA, absent.cpp stands for everything in this
// folder. What fails throws std::runtime_error with the CUDA runtime's own sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace truenorm::cli {

struct CudaDevice {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t l2_bytes = 0;
  size_t shared_bytes = 0;  // that one thread block may have
};

// Those that can be used now; none where there is no driver.
std::vector<CudaDevice> cuda_devices();

// All below is about the device that the calling thread chose last, the first one where it chose none.
void choose_cuda_device(int32_t index);
CudaDevice chosen_cuda_device();
size_t free_device_memory();
void synchronize_device();

void upload(std::byte* device, const std::byte* host, size_t size);
void download(std::byte* host, const std::byte* device, size_t size);
void copy_on_device(std::byte* to, const std::byte* from, size_t size);
void zero_on_device(std::byte* device, size_t size);

// Device memory of its own, aligned to 256 bytes, with no initial value. Throws std::bad_alloc where there is no room.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t size);
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace truenorm::cli
