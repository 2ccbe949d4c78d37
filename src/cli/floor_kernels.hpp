// The loops inside a plain copy (floor.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace truenorm::cli {

// Arrays passed over side by side, `bytes` of each, a multiple of 64; at least one read and one write.
struct CopyLines {
  static constexpr size_t kMaxReads = 4;
  static constexpr size_t kMaxWrites = 2;
  std::array<const std::byte*, kMaxReads> reads{};
  std::array<std::byte*, kMaxWrites> writes{};
  size_t read_count = 0;
  size_t write_count = 0;
  size_t bytes = 0;
};

// Writes the exclusive or of the reads to each of the writes. `streaming`, past the caches, wants writes that are
// aligned to 64 bytes, and a machine where can_stream().
void copy_lines(const CopyLines& lines, bool streaming);

bool can_stream();

// Reads every byte, and nothing else.
void read_all(std::span<const std::byte> bytes);

}  // namespace truenorm::cli
