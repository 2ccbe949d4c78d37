// How a command fails. Each message is one sentence without a final newline; main adds the name and the exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace truenorm::cli {

// Something the caller can put right (an option, a file, a shape). Exit code 2.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The command ran, and what it measured breaks a bar. Exit code 1.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace truenorm::cli
