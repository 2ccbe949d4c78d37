#include "cli/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>

#include "cli/error.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

// The temporary names that a signal must remove. Fixed storage and lock-free flags: a handler may use nothing else.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<bool> live{false};
  std::array<char, PATH_MAX> name{};
};
std::array<Slot, 32> slots;
static_assert(std::atomic<bool>::is_always_lock_free);

void remove_and_die(int signal) {
  for (Slot& slot : slots) {
    if (slot.live.load()) ::unlink(slot.name.data());
  }
  ::raise(signal);  // SA_RESETHAND has put the default action back; it acts when this handler returns
}

void install_handlers() {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction old {};
    if (::sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) continue;  // ignored, as under nohup
    struct sigaction action {};
    action.sa_handler = remove_and_die;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails as on a full disk
}

size_t take_slot(const std::string& name) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].taken.exchange(true)) continue;
    std::copy_n(name.c_str(), name.size() + 1, slots[i].name.begin());
    slots[i].live = true;
    return i;
  }
  user_error("more than {} output files at once", slots.size());
}

}  // namespace

void AtomicFile::require_replaceable(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    user_error("cannot write {}: it is there and not a regular file", printable(path));
  }
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  static std::once_flag installed;
  std::call_once(installed, install_handlers);
  require_replaceable(path);
  std::random_device random;
  temporary_ = fmt::format("{}.{:08x}{:08x}.tmp", path, random(), random());
  if (temporary_.size() >= PATH_MAX) fail(ENAMETOOLONG);
  // The name is registered before the file exists, so that no signal can fall between the two.
  slot_ = take_slot(temporary_);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    const int reason = errno;
    forget();
    fail(reason);
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::flush() {
  if (::fsync(fd_) != 0) fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail(errno);
}

void AtomicFile::commit() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
  forget();
  // The rename itself reaches the disk with the folder; some file systems cannot flush one, which harms nothing.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  forget();
}

void AtomicFile::forget() {
  slots[slot_].live = false;
  slots[slot_].taken = false;
}

void AtomicFile::fail(int reason) const { user_error("cannot write {}: {}", printable(path_), std::strerror(reason)); }

}  // namespace truenorm::cli
