#include "cli/io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/error.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) user_error("cannot open {}: {}", printable(path), std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  size_ = regular ? static_cast<size_t>(status.st_size) : 0;
  void* mapped = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int reason = errno;
  ::close(fd);
  if (!regular) user_error("{} is not a regular file", printable(path));
  if (mapped == MAP_FAILED) user_error("cannot map {}: {}", printable(path), std::strerror(reason));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace truenorm::cli
