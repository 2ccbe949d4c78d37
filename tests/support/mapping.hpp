// Address space far larger than the memory behind it.
#pragma once

#include <cstddef>

namespace truenorm::test {

class Mapping {
 public:
  // Zeros; only pages that are touched exist.
  explicit Mapping(std::size_t size);
  // The same `period` bytes over and over (writes to one show in all), then `tail` bytes of their own. Zeros at first;
  // `period` is a multiple of the page size.
  Mapping(std::size_t period, std::size_t repeats, std::size_t tail);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace truenorm::test
