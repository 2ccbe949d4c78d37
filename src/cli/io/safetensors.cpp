#include "cli/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "cli/error.hpp"
#include "cli/io/shape.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr size_t kPrefix = 8;               // the header's length
constexpr size_t kMaxHeader = 100'000'000;  // upstream's limit
constexpr std::string_view kMetadata = "__metadata__";

struct Type {
  std::string_view name;
  uint64_t bits;
  tn_dtype dtype;
};

constexpr Type kTypes[] = {
    {"F32", 32, TN_F32},           {"F16", 16, TN_F16},           {"BF16", 16, TN_BF16},
    {"F64", 64, TN_DTYPE_NONE},    {"I64", 64, TN_DTYPE_NONE},    {"U64", 64, TN_DTYPE_NONE},
    {"C64", 64, TN_DTYPE_NONE},    {"I32", 32, TN_DTYPE_NONE},    {"U32", 32, TN_DTYPE_NONE},
    {"I16", 16, TN_DTYPE_NONE},    {"U16", 16, TN_DTYPE_NONE},    {"I8", 8, TN_DTYPE_NONE},
    {"U8", 8, TN_DTYPE_NONE},      {"BOOL", 8, TN_DTYPE_NONE},    {"F8_E5M2", 8, TN_DTYPE_NONE},
    {"F8_E4M3", 8, TN_DTYPE_NONE}, {"F8_E8M0", 8, TN_DTYPE_NONE}, {"F6_E2M3", 6, TN_DTYPE_NONE},
    {"F6_E3M2", 6, TN_DTYPE_NONE}, {"F4", 4, TN_DTYPE_NONE},
};

// A tensor's entry in the header, as read so far.
struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

// Reads the header event by event: memory stays proportional to what a valid header holds, and depth is bounded by the
// grammar itself, {name: {"dtype": string, "shape": [..], "data_offsets": [..]}, "__metadata__": {string: string}}.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(std::string_view label) : label_(label) {}

  std::vector<Entry> take() { return std::move(entries_); }

  bool start_object(size_t) override {
    if (level_ == Level::kTop) {
      level_ = Level::kTensors;
    } else if (level_ == Level::kTensors) {
      level_ = in_metadata_ ? Level::kNotes : Level::kFields;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    level_ = level_ == Level::kTensors ? Level::kTop : Level::kTensors;
    return true;
  }

  bool key(string_t& text) override {
    if (level_ == Level::kFields) {
      field_ = text == "dtype"          ? Field::kDtype
               : text == "shape"        ? Field::kShape
               : text == "data_offsets" ? Field::kOffsets
                                        : Field::kNone;
      if (field_ == Field::kNone) user_error("{}: tensor {} has an unknown key {}", label_, current(), printable(text));
      return true;
    }
    std::unordered_set<std::string>& seen = level_ == Level::kNotes ? metadata_keys_ : names_;
    if (!seen.insert(text).second) user_error("{}: the name {} appears twice in its header", label_, printable(text));
    if (level_ == Level::kTensors) {
      in_metadata_ = text == kMetadata;
      if (!in_metadata_) entries_.push_back({text, {}, {}, {}});
    }
    return true;
  }

  bool string(string_t& text) override {
    if (level_ == Level::kNotes) return true;
    if (level_ != Level::kFields || field_ != Field::kDtype) unexpected("a string");
    set(entries_.back().dtype, std::move(text));
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::kFields || field_ == Field::kDtype) unexpected("an array");
    set(field_ == Field::kShape ? entries_.back().shape : entries_.back().offsets, std::vector<uint64_t>());
    level_ = Level::kNumbers;
    return true;
  }

  bool end_array() override {
    level_ = Level::kFields;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kNumbers) unexpected("a number");
    std::vector<uint64_t>& values = field_ == Field::kShape ? *entries_.back().shape : *entries_.back().offsets;
    if (values.size() == kMaxFileDims) {
      user_error("{}: tensor {} has more than {} dimensions", label_, current(), kMaxFileDims);
    }
    values.push_back(value);
    return true;
  }

  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number that is not a 64-bit integer"); }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    user_error("{}: its header is not valid JSON in UTF-8 (at byte {})", label_, kPrefix + position);
  }

 private:
  enum class Level { kTop, kTensors, kNotes, kFields, kNumbers };
  enum class Field { kNone, kDtype, kShape, kOffsets };

  std::string current() const { return printable(entries_.back().name); }

  [[noreturn]] void unexpected(std::string_view what) const {
    const bool in_tensor = !entries_.empty() && !in_metadata_ && level_ != Level::kTop;
    user_error("{}: its header has {} where none may be{}", label_, what,
               in_tensor ? ", at tensor " + current() : std::string());
  }

  template <typename T>
  void set(std::optional<T>& slot, T value) {
    if (slot) user_error("{}: tensor {} says one thing twice", label_, current());
    slot = std::move(value);
  }

  std::string_view label_;
  Level level_ = Level::kTop;
  Field field_ = Field::kNone;
  bool in_metadata_ = false;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
  std::vector<Entry> entries_;
};

// The header's text, its length checked against the file.
std::string_view header_text(std::span<const std::byte> file, std::string_view label) {
  if (file.size() < kPrefix) user_error("{}: {} bytes are too few for a .safetensors file", label, file.size());
  uint64_t size = 0;
  for (size_t i = kPrefix; i-- > 0;) size = size << 8U | std::to_integer<uint64_t>(file[i]);
  if (size > kMaxHeader) {
    user_error("{}: its header claims {} bytes, and {} are allowed; is it a .safetensors file?", label, size,
               kMaxHeader);
  }
  if (size > file.size() - kPrefix) user_error("{}: it ends inside its header of {} bytes", label, size);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kPrefix, size);
  if (!text.starts_with('{')) user_error("{}: its header does not start with '{{'", label);
  // The JSON reader takes NUL for the end of its input.
  if (text.find('\0') != std::string_view::npos) user_error("{}: its header holds a NUL byte", label);
  return text;
}

StoredTensor to_tensor(const Entry& entry, std::span<const std::byte> data, std::string_view label) {
  const std::string name = printable(entry.name);
  if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2) {
    user_error("{}: tensor {} needs 'dtype', 'shape' and two 'data_offsets'", label, name);
  }
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const Type& candidate) { return candidate.name == *entry.dtype; });
  if (type == std::end(kTypes)) {
    user_error("{}: tensor {} has type {}, which does not exist", label, name, printable(*entry.dtype));
  }
  const std::vector<int64_t> shape(entry.shape->begin(), entry.shape->end());  // beyond int64: negative, refused below
  const std::optional<int64_t> count = element_count(shape);
  uint64_t bits = 0;
  if (!count || __builtin_mul_overflow(static_cast<uint64_t>(*count), type->bits, &bits)) {
    user_error("{}: tensor {}: its shape [{}] overflows 64 bits", label, name, fmt::join(*entry.shape, ", "));
  }
  const uint64_t begin = (*entry.offsets)[0];
  const uint64_t end = (*entry.offsets)[1];
  if (begin > end || end > data.size()) {
    user_error("{}: tensor {}: its data_offsets [{}, {}] lie outside the {} bytes of data", label, name, begin, end,
               data.size());
  }
  if (bits % 8 != 0 || end - begin != bits / 8) {
    user_error("{}: tensor {}: shape {} of {} needs {} bytes, its data_offsets give {}", label, name, shape_text(shape),
               type->name, (bits + 7) / 8, end - begin);
  }
  return {entry.name, *entry.dtype, type->dtype, shape, data.subspan(begin, end - begin)};
}

}  // namespace

std::vector<StoredTensor> read_safetensors(std::span<const std::byte> file, std::string_view label) {
  const std::string_view text = header_text(file, label);
  HeaderHandler handler(label);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
    user_error("{}: its header is not valid JSON", label);
  }
  const std::span<const std::byte> data = file.subspan(kPrefix + text.size());
  std::vector<StoredTensor> tensors;
  for (const Entry& entry : handler.take()) tensors.push_back(to_tensor(entry, data, label));

  // An empty tensor sorts before the one that starts where it lies.
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  const std::byte* expected = data.data();
  for (const StoredTensor& tensor : tensors) {
    if (tensor.bytes.data() != expected) {
      user_error("{}: tensor {}: its data {}", label, printable(tensor.name),
                 tensor.bytes.data() < expected ? "overlaps another's" : "comes after a hole");
    }
    expected += tensor.bytes.size();
  }
  const auto covered = static_cast<size_t>(expected - data.data());
  if (covered != data.size()) {
    user_error("{}: {} bytes after its tensors belong to none", label, data.size() - covered);
  }
  return tensors;
}

SafetensorsLayout safetensors_layout(std::span<const OutputTensor> tensors) {
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::stable_sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    return tn_dtype_size(tensors[a].dtype) > tn_dtype_size(tensors[b].dtype);
  });
  nlohmann::ordered_json header;
  size_t offset = 0;
  for (const size_t index : layout.order) {
    const OutputTensor& tensor = tensors[index];
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const Type& candidate) { return candidate.dtype == tensor.dtype; });
    header[tensor.name] = {{"dtype", std::string(type->name)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((kPrefix - text.size() % kPrefix) % kPrefix, ' ');
  for (size_t i = 0; i < kPrefix; ++i) layout.header += static_cast<char>(text.size() >> 8U * i & 0xFFU);
  layout.header += text;
  return layout;
}

}  // namespace truenorm::cli
