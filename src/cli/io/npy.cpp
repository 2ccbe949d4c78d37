#include "cli/io/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "cli/error.hpp"
#include "cli/io/shape.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = 1U << 16;  // numpy's own limit is 10000 unless it is told to trust the file

struct Fields {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view label) : text_(text), label_(label) {}

  Fields parse() {
    Fields fields;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !fields.descr) {
        fields.descr = descr();
      } else if (key == "fortran_order" && !fields.fortran_order) {
        fields.fortran_order = boolean();
      } else if (key == "shape" && !fields.shape) {
        fields.shape = tuple();
      } else {
        user_error("{}: its header has an unknown or repeated key {}", label_, printable(key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!text_.empty()) malformed("something follows the dictionary");
    if (!fields.descr || !fields.fortran_order || !fields.shape) {
      malformed("it needs the keys 'descr', 'fortran_order' and 'shape'");
    }
    return fields;
  }

 private:
  [[noreturn]] void malformed(std::string_view what) const {
    user_error("{}: its header is not that of a .npy file: {}", label_, what);
  }

  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }

  bool accept(std::string_view token) {
    skip_space();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  bool accept(char token) { return accept(std::string_view(&token, 1)); }

  void expect(char token) {
    if (!accept(token)) malformed(fmt::format("no '{}' where one must be", token));
  }

  std::string string() {
    skip_space();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) malformed("no string where one must be");
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) malformed("a string does not end");
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }

  std::string descr() {
    skip_space();
    if (text_.starts_with('[')) user_error("{}: it holds records (a structured type), not numbers", label_);
    return string();
  }

  bool boolean() {
    if (accept("True")) return true;
    if (accept("False")) return false;
    malformed("'fortran_order' is neither True nor False");
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (error == std::errc::result_out_of_range) malformed("a dimension does not fit 64 bits");
      if (error != std::errc()) malformed("a dimension is not a number");
      if (value < 0) malformed("a dimension is negative");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      values.push_back(value);
      if (values.size() > kMaxFileDims) malformed(fmt::format("it has more than {} dimensions", kMaxFileDims));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view text_;
  std::string_view label_;
};

struct Type {
  tn_dtype dtype;
  size_t size;  // bytes
};

// "<f4" and its like: byte order, kind, bytes.
Type parse_type(const std::string& descr, std::string_view label) {
  int64_t size = 0;
  const char* end = descr.data() + descr.size();
  const bool shaped = descr.size() >= 3 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  if (!shaped || std::from_chars(descr.data() + 2, end, size).ptr != end || size < 1 || size > 65536) {
    user_error("{}: {} is not a type of numpy's that can be read here", label, printable(descr));
  }
  if (descr[0] == '>' && size > 1) {
    user_error("{}: its type {} is big-endian; save it little-endian ('<')", label, printable(descr));
  }
  if (descr[1] == 'U') size *= 4;  // counted in characters, of four bytes
  const tn_dtype dtype = descr == "<f4" ? TN_F32 : descr == "<f2" ? TN_F16 : TN_DTYPE_NONE;
  return {dtype, static_cast<size_t>(size)};
}

}  // namespace

StoredTensor read_npy(std::span<const std::byte> file, std::string_view label) {
  constexpr size_t kPrefix = 8;  // magic, major, minor
  if (file.size() < kPrefix || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    user_error("{}: it is not a .npy file (its first bytes are not '\\x93NUMPY')", label);
  }
  const auto byte = [&](size_t i) { return std::to_integer<size_t>(file[i]); };
  const size_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0) user_error("{}: .npy version {}.{} is unknown", label, major, byte(7));

  const size_t length_bytes = major == 1 ? 2 : 4;
  if (file.size() < kPrefix + length_bytes) user_error("{}: it ends inside its header", label);
  size_t header_size = 0;
  for (size_t i = length_bytes; i-- > 0;) header_size = header_size << 8U | byte(kPrefix + i);
  const size_t data_at = kPrefix + length_bytes + header_size;
  if (data_at > file.size()) user_error("{}: it ends inside its header of {} bytes", label, header_size);
  if (header_size > kMaxHeader) user_error("{}: its header of {} bytes is too long for a .npy", label, header_size);

  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kPrefix + length_bytes, header_size);
  Fields fields = HeaderParser(header, label).parse();
  const Type type = parse_type(*fields.descr, label);
  if (*fields.fortran_order && fields.shape->size() > 1) {
    user_error("{}: it is in Fortran order; save numpy.ascontiguousarray of it", label);
  }
  const std::optional<int64_t> count = element_count(*fields.shape);
  size_t needed = 0;
  if (!count || __builtin_mul_overflow(static_cast<size_t>(*count), type.size, &needed)) {
    user_error("{}: its shape {} overflows 64 bits", label, shape_text(*fields.shape));
  }
  if (file.size() - data_at != needed) {
    user_error("{}: shape {} of {} needs {} bytes of data, the file has {}", label, shape_text(*fields.shape),
               printable(*fields.descr), needed, file.size() - data_at);
  }
  return {"", *fields.descr, type.dtype, *std::move(fields.shape), file.subspan(data_at)};
}

std::string npy_header(const OutputTensor& tensor) {
  if (tensor.dtype == TN_BF16) {
    user_error("a .npy cannot hold bf16, which numpy does not have: write {} to a .safetensors, or ask for f32",
               tensor.name);
  }
  constexpr size_t kAlign = 64;
  constexpr size_t kPrefix = 10;
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 tensor.dtype == TN_F16 ? "<f2" : "<f4", shape_text(tensor.shape));
  text.append(kAlign - 1 - (kPrefix + text.size()) % kAlign, ' ');
  text += '\n';
  std::string out(kMagic);
  out += {'\x01', '\x00', static_cast<char>(text.size() & 0xFFU), static_cast<char>(text.size() >> 8U)};
  return out + text;
}

}  // namespace truenorm::cli
