#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace truenorm::cli {

// Memory of its own, aligned to a cache line, with no initial value.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) : data_(static_cast<std::byte*>(::operator new(size, kAlign))), size_(size) {}
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, kAlign); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// A dense tensor in memory; default-constructed, an absent one.
class HostTensor {
 public:
  HostTensor() = default;
  // `count` is the product of `shape`.
  HostTensor(tn_dtype dtype, std::vector<int64_t> shape, int64_t count)
      : dtype_(dtype),
        shape_(std::move(shape)),
        count_(count),
        buffer_(static_cast<size_t>(count) * tn_dtype_size(dtype)) {}

  explicit operator bool() const { return dtype_ != TN_DTYPE_NONE; }
  tn_dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t count() const { return count_; }
  std::span<std::byte> bytes() const { return buffer_.bytes(); }

  // The library's views of it; absent where the tensor is.
  tn_tensor matrix(int64_t n) const { return *this ? tn_matrix(bytes().data(), dtype_, count_ / n, n) : tn_tensor{}; }
  tn_tensor vector() const { return *this ? tn_vector(bytes().data(), dtype_, count_) : tn_tensor{}; }

 private:
  tn_dtype dtype_ = TN_DTYPE_NONE;
  std::vector<int64_t> shape_;
  int64_t count_ = 0;
  Buffer buffer_;
};

}  // namespace truenorm::cli
