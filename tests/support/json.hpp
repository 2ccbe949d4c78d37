// As much of JSON as the golden vectors use: objects, arrays, integers, and strings without escapes. The core's tests
// need no library for it, so that they build wherever the core does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace truenorm::test {

struct Json {
  std::int64_t number = 0;
  std::string text;
  std::vector<Json> items;         // of an array or object
  std::vector<std::string> names;  // of an object, one for each item

  // Throws std::runtime_error at anything else.
  static Json parse(std::string_view text);

  bool has(std::string_view name) const;
  const Json& operator[](std::string_view name) const;  // throws where there is none
};

}  // namespace truenorm::test
