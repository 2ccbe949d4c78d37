#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/text.hpp"

namespace truenorm::fuzz {

// Ends the process, which libFuzzer reports together with the input.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// A refusal is one printable line, whatever the file holds, and not a long one.
inline void check_refusal(std::string_view message) {
  require(!message.empty() && message.size() < 1000, "a refusal has a length that can be read");
  require(cli::one_line(message) == message, "a refusal is one line without control characters");
}

}  // namespace truenorm::fuzz
