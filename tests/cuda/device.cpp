#include "cuda/device.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace truenorm::test {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMargin = 512;
constexpr int kCanary = 0xa5;

// By device and size.
class Kept {
 public:
  void put(int device, std::size_t size, std::byte* data) {
    const std::lock_guard lock(mutex_);
    all_.emplace(std::pair(device, size), data);
  }
  std::byte* take(int device, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find({device, size});
    return found == all_.end() ? nullptr : all_.extract(found).mapped();
  }

 private:
  std::mutex mutex_;
  std::multimap<std::pair<int, std::size_t>, std::byte*> all_;
};

Kept& kept() {
  static Kept all;
  return all;
}

std::size_t rounded(std::size_t size) {
  std::size_t to = 4096;
  while (to < size) to *= 2;
  return to;
}

}  // namespace

void require(cudaError_t e) {
  if (e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
}

DeviceBytes::DeviceBytes(std::size_t size) : size_(size) {
  require(cudaGetDevice(&device_));
  data_ = kept().take(device_, rounded(size));
  if (data_ != nullptr) return;
  void* data = nullptr;
  require(cudaMalloc(&data, rounded(size)));
  data_ = static_cast<std::byte*>(data);
}

DeviceBytes::~DeviceBytes() {
  if (size_ > (std::size_t{1} << 30)) {
    cudaFree(data_);
  } else {
    kept().put(device_, rounded(size_), data_);
  }
}

std::size_t DeviceCopy::total(Arena& arena) {
  std::size_t size = kAlignment;
  arena.for_each_buffer([&](std::byte*, std::size_t n) { size += n + 2 * kAlignment; });
  return size;
}

DeviceCopy::DeviceCopy(Arena& arena) : memory_(total(arena)) {
  std::byte* next = memory_.data();
  arena.for_each_buffer([&](std::byte* host, std::size_t size) {
    next += (kAlignment - reinterpret_cast<std::uintptr_t>(next) % kAlignment) % kAlignment;
    next += reinterpret_cast<std::uintptr_t>(host) % kAlignment;
    places_[host] = {size, next};
    next += size;
  });
}

void DeviceCopy::upload() {
  for (const auto& [host, place] : places_) {
    require(cudaMemcpy(place.device, host, place.size, cudaMemcpyHostToDevice));
  }
  // A copy from pageable memory may return before its last bytes have arrived, and streams of the tests wait for none.
  require(cudaDeviceSynchronize());
}

void DeviceCopy::download() {
  require(cudaDeviceSynchronize());
  for (const auto& [host, place] : places_) {
    require(cudaMemcpy(host, place.device, place.size, cudaMemcpyDeviceToHost));
  }
}

tn_tensor DeviceCopy::moved(const tn_tensor& t) const {
  if (absent(t)) return t;
  auto* const data = static_cast<std::byte*>(t.data);
  auto place = places_.upper_bound(data);
  if (place == places_.begin()) throw std::logic_error("no buffer of this arena");
  --place;
  tn_tensor there = t;
  there.data = place->second.device + (data - place->first);
  return there;
}

tn_forward_args DeviceCopy::moved(tn_forward_args a) const {
  for (tn_tensor* t : {&a.x, &a.residual, &a.weight, &a.bias, &a.y, &a.residual_out, &a.mean, &a.rstd}) *t = moved(*t);
  return a;
}

tn_backward_args DeviceCopy::moved(tn_backward_args a) const {
  for (tn_tensor* t : {&a.dy, &a.ds, &a.s, &a.weight, &a.mean, &a.rstd, &a.dx, &a.dresidual, &a.dweight, &a.dbias}) {
    *t = moved(*t);
  }
  return a;
}

tn_exec on_device(cudaStream_t stream, int device) {
  tn_exec exec{};
  exec.struct_size = sizeof exec;
  exec.device = TN_CUDA;
  exec.device_index = device;
  exec.stream = stream;
  return exec;
}

tn_workspace DeviceWorkspace::needed(const tn_backward_args& args, int device) {
  tn_workspace w{};
  tn_error error;
  const tn_exec exec = on_device(nullptr, device);
  if (tn_backward_workspace(&exec, &args, &w, &error) != TN_OK) throw std::runtime_error(error.message);
  return w;
}

// Both at odd addresses: any will do.
DeviceWorkspace::DeviceWorkspace(const tn_backward_args& args, int device)
    : workspace_(needed(args, device)),
      data_(workspace_.size + 2 * kMargin),
      counters_(workspace_.counters_size + 2 * kMargin) {
  data_.fill(kCanary);
  counters_.fill(kCanary);
  workspace_.data = data_.data() + kMargin + 3;
  workspace_.counters = counters_.data() + kMargin + 5;
  require(cudaMemset(workspace_.data, 0xff, workspace_.size));
  require(cudaMemset(workspace_.counters, 0, workspace_.counters_size));
  require(cudaDeviceSynchronize());
}

testing::AssertionResult DeviceWorkspace::left_well() const {
  require(cudaDeviceSynchronize());
  const auto check = [](const DeviceBytes& of, const void* begin, std::size_t size, bool zero, const char* name) {
    std::vector<unsigned char> bytes(of.size());
    require(cudaMemcpy(bytes.data(), of.data(), of.size(), cudaMemcpyDeviceToHost));
    const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(begin) - of.data());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const bool inside = i >= first && i < first + size;
      if (inside ? zero && bytes[i] != 0 : bytes[i] != kCanary) {
        return testing::AssertionFailure() << name << ": byte " << i << " is " << int{bytes[i]};
      }
    }
    return testing::AssertionSuccess();
  };
  const auto data = check(data_, workspace_.data, workspace_.size, false, "workspace");
  return data ? check(counters_, workspace_.counters, workspace_.counters_size, true, "counters") : data;
}

void enqueue(const tn_forward_args& args, const tn_exec& exec) {
  tn_error error{};
  EXPECT_EQ(tn_forward(&exec, &args, nullptr, &error), TN_OK) << error.message;
}

void enqueue(const tn_backward_args& args, const DeviceWorkspace& workspace, const tn_exec& exec) {
  tn_error error{};
  EXPECT_EQ(tn_backward(&exec, &args, &workspace.get(), &error), TN_OK) << error.message;
}

void enqueue(const tn_forward_args& args, cudaStream_t stream) { enqueue(args, on_device(stream)); }
void enqueue(const tn_backward_args& args, const DeviceWorkspace& workspace, cudaStream_t stream) {
  enqueue(args, workspace, on_device(stream));
}

void run_on_device(Arena& arena, const tn_forward_args& args) {
  DeviceCopy copy(arena);
  copy.upload();
  enqueue(copy.moved(args));
  copy.download();
}

void run_on_device(Arena& arena, const tn_backward_args& args) {
  DeviceCopy copy(arena);
  const DeviceWorkspace workspace(args);
  copy.upload();
  enqueue(copy.moved(args), workspace);
  copy.download();
  EXPECT_TRUE(workspace.left_well());
}

}  // namespace truenorm::test
