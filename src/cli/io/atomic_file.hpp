#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace truenorm::cli {

// An output file that appears whole or not at all: written under a temporary name in the same folder, flushed to the
// disk, then renamed. What is left is removed by the destructor and on SIGHUP, SIGINT and SIGTERM (whose handlers the
// first object installs). At most 32 may be open at a time. Only a regular file is ever replaced: a rename would put
// one in a device's place too.
class AtomicFile {
 public:
  // Each of these throws UserError naming `path` and the reason.
  explicit AtomicFile(const std::string& path);
  static void require_replaceable(const std::string& path);  // what the constructor asks of what is there already
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void flush();   // to the disk; nothing may be written afterwards
  void commit();  // flush must have been called: the file takes its name

  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

 private:
  [[noreturn]] void fail(int reason) const;
  void forget();

  std::string path_;
  std::string temporary_;
  size_t slot_;
  int fd_ = -1;
};

}  // namespace truenorm::cli
