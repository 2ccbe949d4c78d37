#include "support/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace truenorm::test {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

std::byte* reserve(std::size_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) fail("mmap");
  return static_cast<std::byte*>(data);
}

}  // namespace

Mapping::Mapping(std::size_t size) : data_(reserve(size)), size_(size) {}

Mapping::Mapping(std::size_t period, std::size_t repeats, std::size_t tail)
    : data_(reserve(period * repeats + tail)), size_(period * repeats + tail) {
  const int file = memfd_create("truenorm-test", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(period)) != 0) fail("memfd_create");
  for (std::size_t i = 0; i < repeats; ++i) {
    const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    if (mmap(data_ + i * period, period, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) fail("mmap");
  }
  close(file);
}

Mapping::~Mapping() { munmap(data_, size_); }

}  // namespace truenorm::test
