#include "cli/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace truenorm::cli {
namespace {

constexpr size_t kMaxQuoted = 120;

// Levenshtein distance, over at most the first 128 bytes of each so that hostile names stay cheap.
size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 128);
  b = b.substr(0, 128);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({substituted, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xC2U && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xE0U) == 0x80U;
    if (c1) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if (c < 0x20U || c == 0x7FU) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string printable(std::string_view text) {
  if (text.size() <= kMaxQuoted) return fmt::format("'{}'", one_line(text));
  size_t end = kMaxQuoted;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // not inside a character
  return fmt::format("'{}...'", one_line(text.substr(0, end)));
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names, size_t limit) {
  constexpr size_t kMaxCandidates = 20000;
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (const std::string& name : names.first(std::min(names.size(), kMaxCandidates))) {
    ranked.emplace_back(edit_distance(wanted, name), name);
  }
  const size_t count = std::min(limit, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(ranked[i].second);
  return out;
}

}  // namespace truenorm::cli
