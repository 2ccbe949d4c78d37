// Launches: the device guard, attributes, and errors as the runtime's sentences.
#pragma once

#include <cuda_runtime.h>

#include "cuda/run.hpp"
#include "cuda/tuning/device.hpp"

namespace truenorm::cuda {

// What cudaGetDeviceProperties would say, asked once for each device. Null and a sentence where there is none.
const Device* device_of(int index, const char*& error);

// Makes a device current for as long as it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const char* error() const { return error_; }

 private:
  int before_ = -1;
  const char* error_ = nullptr;
};

// How many of a launch's thread blocks are on the device at once.
enum class Residence {
  kAny,     // one for each of `blocks`
  kWanted,  // at most those that fit, each with about as much to do
  kSure     // at most those that fit, and surely so: a cooperative launch, in which they may wait for each other
};

struct Launch {
  const void* kernel;
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes = 0;
  int cluster = 1;
  Residence residence = Residence::kAny;  // other than kAny: fewer thread blocks do the work of all
};

const char* enqueue(const Launch& launch, const Where& where, void** arguments);

template <class... Arguments>
const char* launch(const Launch& what, const Where& where, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  return enqueue(what, where, pointers);
}

}  // namespace truenorm::cuda
