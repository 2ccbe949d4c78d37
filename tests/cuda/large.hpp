// Gigabytes of device memory.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace truenorm::test {

// Processes take turns: together their tests would want more memory than a device has.
class Turn {
 public:
  Turn();
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int file_;
};

// With a gigabyte to spare.
bool room_for(std::size_t bytes);

// Skips the test, aloud, where the device has too little memory.
#define TN_NEEDS_DEVICE_MEMORY(bytes)                                                             \
  do {                                                                                            \
    if (!room_for(bytes)) GTEST_SKIP() << "needs " << ((bytes) >> 30) << " GiB of device memory"; \
  } while (false)

// An array on the device: NaNs at first, with canaries at both ends.
class Large {
 public:
  explicit Large(std::size_t size);
  ~Large();
  Large(const Large&) = delete;
  Large& operator=(const Large&) = delete;
  std::byte* data() const { return all_ + kMargin; }
  std::size_t size() const { return size_; }

  // `pattern` over and over; the last of them may be cut off.
  void repeat(const std::vector<std::byte>& pattern);
  // Whether it holds that, from `first` to `last`, and the canaries are whole.
  testing::AssertionResult repeats(const std::vector<std::byte>& pattern, std::size_t first, std::size_t last) const;
  testing::AssertionResult repeats(const std::vector<std::byte>& pattern) const { return repeats(pattern, 0, size_); }
  testing::AssertionResult margins_whole() const;

 private:
  static constexpr std::size_t kMargin = 4096;
  std::byte* all_ = nullptr;
  std::size_t size_;
};

}  // namespace truenorm::test
