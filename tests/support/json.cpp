#include "support/json.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace truenorm::test {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Json document() {
    Json value = any();
    if (next() != '\0') fail("the end");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* wanted) const {
    throw std::runtime_error("JSON: needs " + std::string(wanted) + " at '" + std::string(rest_.substr(0, 20)) + "'");
  }

  char next() {
    const std::size_t skip = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(skip == std::string_view::npos ? rest_.size() : skip);
    return rest_.empty() ? '\0' : rest_.front();
  }

  bool take(char c) {
    if (next() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string(1, c).c_str());
  }

  std::string string() {
    expect('"');
    const std::size_t end = rest_.find('"');
    if (end == std::string_view::npos || rest_.substr(0, end).find('\\') != std::string_view::npos)
      fail("a plain string");
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }

  Json any() {
    Json value;
    switch (next()) {
      case '{':
        expect('{');
        if (take('}')) break;
        do {
          value.names.push_back(string());
          expect(':');
          value.items.push_back(any());
        } while (take(','));
        expect('}');
        break;
      case '[':
        expect('[');
        if (take(']')) break;
        do value.items.push_back(any());
        while (take(','));
        expect(']');
        break;
      case '"': value.text = string(); break;
      default: {
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value.number);
        if (error != std::errc()) fail("a value");
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      }
    }
    return value;
  }

  std::string_view rest_;
};

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).document(); }

bool Json::has(std::string_view name) const { return std::find(names.begin(), names.end(), name) != names.end(); }

const Json& Json::operator[](std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::runtime_error("JSON: no member '" + std::string(name) + "'");
  return items[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace truenorm::test
