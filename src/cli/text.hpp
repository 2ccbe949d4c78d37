// Text for messages: what comes from a file or the command line is made safe to print on one line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace truenorm::cli {

// `text` with its control characters (C0, DEL, C1) written as \xNN.
std::string one_line(std::string_view text);

// The same, in single quotes, and cut after 120 bytes.
std::string printable(std::string_view text);

// "(30522, 384)", "(7,)", "()", as Python writes it.
std::string shape_text(std::span<const int64_t> shape);

// Up to `limit` of `names` nearest to `wanted` by edit distance, nearest first.
std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names, size_t limit);

}  // namespace truenorm::cli
