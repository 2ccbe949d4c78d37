#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace truenorm::cli {

// A regular file mapped read-only: only the pages looked at are read, so that a few rows of a large model cost little.
// Readers copy what they take out of it; a file that shrinks meanwhile ends the process by SIGBUS, as for any mapping.
class MappedFile {
 public:
  // Throws UserError naming `path` when it cannot be opened or is not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace truenorm::cli
