#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace truenorm::cli {

// The memory that one call passes over: every byte of `reads` is read once and every byte of `writes` written once.
struct CopySet {
  std::vector<std::span<const std::byte>> reads;
  std::vector<std::span<std::byte>> writes;

  size_t bytes() const;
};

}  // namespace truenorm::cli
