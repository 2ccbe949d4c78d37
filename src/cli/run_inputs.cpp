#include "cli/run_inputs.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "cli/elements.hpp"
#include "cli/error.hpp"
#include "cli/io/tensor_file.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr std::string_view kOnes = "ones";
constexpr std::string_view kRandom = "random:";

using Shape = std::vector<int64_t>;

bool is_made_up(std::string_view spec) { return spec == kOnes || spec.starts_with(kRandom); }

int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Shape joined(Shape front, const Shape& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

bool ends_with(const Shape& shape, const Shape& tail) {
  return tail.size() <= shape.size() && std::equal(tail.rbegin(), tail.rend(), shape.rbegin());
}

HostTensor make_up(std::string_view option, std::string_view spec, tn_dtype dtype, const Shape& shape) {
  HostTensor tensor(dtype, shape, product(shape));
  if (spec == kOnes) {
    fill_with(dtype, 1, tensor.bytes());
    return tensor;
  }
  const std::string_view digits = spec.substr(kRandom.size());
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    user_error("{} {}: the seed must be a whole number, 0 to 2^64 - 1", option, printable(spec));
  }
  fill_normal(dtype, seed, tensor.bytes());
  return tensor;
}

// "(2, 5)": where element `index` of a tensor of this shape lies.
std::string index_text(const Shape& shape, int64_t index) {
  Shape place(shape.size());
  for (size_t i = shape.size(); i-- > 0; index /= shape[i]) place[i] = index % shape[i];
  return shape_text(place);
}

// What is wrong with a file says which operand it was to be.
TensorFile open_file(std::string_view option, const std::string& spec) {
  try {
    return TensorFile(spec);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", option, error.what()));
  }
}

class Loader {
 public:
  Loader(const RunOptions& options, const RunSettings& settings) : options_(options), settings_(settings) {}

  RunInputs load();

 private:
  // `count` elements from `first` on, converted to `dtype` (NONE: left as they are), as a tensor of `shape`.
  HostTensor take(std::string_view option, const TensorFile& file, tn_dtype dtype, int64_t first, Shape shape) const;

  void read_rows_option();
  void find_normalized(const TensorFile& x, const std::optional<TensorFile>& weight,
                       const std::optional<TensorFile>& bias);
  HostTensor matrix(std::string_view option, const std::string& spec, tn_dtype dtype, tn_dtype made_up_dtype) const;
  HostTensor parameter(std::string_view option, const std::string& spec, const std::optional<TensorFile>& file) const;
  HostTensor statistic(std::string_view option, const std::string& spec) const;

  // A file's tensor with one entry of `row_shape` per row: all rows (of which those chosen are taken), or just as
  // many as are chosen.
  HostTensor rows_of(std::string_view option, const TensorFile& file, tn_dtype dtype, const Shape& row_shape) const;

  tn_dtype residual_dtype() const { return settings_.residual_dtype ? settings_.residual_dtype : settings_.dtype; }

  const RunOptions& options_;
  const RunSettings& settings_;
  RunInputs in_;
  Shape all_leading_;  // x's leading dimensions as in the file
  int64_t first_row_ = 0;
};

HostTensor Loader::take(std::string_view option, const TensorFile& file, tn_dtype dtype, int64_t first,
                        Shape shape) const {
  const StoredTensor& stored = file.tensor();
  const auto size = static_cast<int64_t>(tn_dtype_size(stored.dtype));
  const int64_t count = product(shape);
  const auto bytes = stored.bytes.subspan(static_cast<size_t>(first * size), static_cast<size_t>(count * size));
  const auto refuse = [&](const NonFinite& found, std::string_view what) {
    user_error("{} {}: {} {}, the first at {}; --allow-nonfinite takes it as it is", option, printable(file.path()),
               found.count, what, index_text(stored.shape, first + found.first));
  };
  if (!options_.allow_nonfinite) {
    const NonFinite found = find_nonfinite(stored.dtype, bytes);
    if (found.count > 0) refuse(found, found.count == 1 ? "value is not finite" : "values are not finite");
  }
  HostTensor tensor(dtype ? dtype : stored.dtype, std::move(shape), count);
  convert(stored.dtype, bytes, tensor.dtype(), tensor.bytes());
  if (!options_.allow_nonfinite && tensor.dtype() != stored.dtype) {
    const NonFinite found = find_nonfinite(tensor.dtype(), tensor.bytes());
    if (found.count > 0) {
      refuse(found, fmt::format("{} too large for {}", found.count == 1 ? "value is" : "values are",
                                tn_dtype_name(tensor.dtype())));
    }
  }
  return tensor;
}

void Loader::find_normalized(const TensorFile& x, const std::optional<TensorFile>& weight,
                             const std::optional<TensorFile>& bias) {
  const Shape& shape = x.tensor().shape;
  if (shape.empty()) user_error("--x {}: it is a single number, without a dimension to normalise", printable(x.path()));
  in_.normalized = {shape.back()};
  if (weight || bias) in_.normalized = (weight ? weight : bias)->tensor().shape;
  for (const auto& [option, file] : {std::pair("--weight", &weight), std::pair("--bias", &bias)}) {
    if (!*file) continue;
    const Shape& own = (*file)->tensor().shape;
    if (own.empty() || !ends_with(shape, own)) {
      user_error("{} has shape {}, which must be the last dimensions of x, whose shape is {}", option, shape_text(own),
                 shape_text(shape));
    }
    if (own != in_.normalized) {
      user_error("{} has shape {}, but --weight has {}", option, shape_text(own), shape_text(in_.normalized));
    }
  }
  in_.n = product(in_.normalized);
  if (in_.n < 1)
    user_error("--x {} has shape {}: the dimension to normalise is empty", printable(x.path()), shape_text(shape));
  all_leading_.assign(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(in_.normalized.size()));
}

void Loader::read_rows_option() {
  const int64_t all = product(all_leading_);
  in_.leading = all_leading_;
  in_.m = all;
  if (options_.rows.empty()) return;
  const std::string& text = options_.rows;
  const char* const end = text.data() + text.size();
  int64_t last = 0;
  const auto first_number = std::from_chars(text.data(), end, first_row_);
  const bool colon = first_number.ec == std::errc() && first_number.ptr != end && *first_number.ptr == ':';
  const auto last_number = colon ? std::from_chars(first_number.ptr + 1, end, last) : first_number;
  if (!colon || last_number.ec != std::errc() || last_number.ptr != end) {
    user_error("--rows {}: it takes two row numbers, A:B", printable(text));
  }
  if (first_row_ < 0 || last < first_row_ || last > all) {
    user_error("--rows {}: x has rows 0 to {}, and B must not lie before A", printable(text), all);
  }
  in_.m = last - first_row_;
  in_.leading = {in_.m};
}

HostTensor Loader::rows_of(std::string_view option, const TensorFile& file, tn_dtype dtype,
                           const Shape& row_shape) const {
  const Shape& shape = file.tensor().shape;
  const Shape chosen = joined(in_.leading, row_shape);
  if (shape == chosen) return take(option, file, dtype, 0, chosen);
  const Shape whole = joined(all_leading_, row_shape);
  if (shape == whole) return take(option, file, dtype, first_row_ * product(row_shape), chosen);
  user_error("{} has shape {}, and x needs {}", option, shape_text(shape), shape_text(whole));
}

HostTensor Loader::matrix(std::string_view option, const std::string& spec, tn_dtype dtype,
                          tn_dtype made_up_dtype) const {
  if (spec.empty()) return {};
  if (is_made_up(spec)) return make_up(option, spec, dtype ? dtype : made_up_dtype, in_.matrix_shape());
  return rows_of(option, open_file(option, spec), dtype, in_.normalized);
}

HostTensor Loader::parameter(std::string_view option, const std::string& spec,
                             const std::optional<TensorFile>& file) const {
  if (spec.empty()) return {};
  if (!file)
    return make_up(option, spec, settings_.weight_dtype ? settings_.weight_dtype : in_.x.dtype(), in_.normalized);
  return take(option, *file, settings_.weight_dtype, 0, in_.normalized);
}

HostTensor Loader::statistic(std::string_view option, const std::string& spec) const {
  if (spec.empty()) return {};
  const TensorFile file = open_file(option, spec);
  if (file.tensor().dtype != TN_F32) {
    user_error("{} {}: it is {}, and statistics are f32", option, printable(file.path()),
               tn_dtype_name(file.tensor().dtype));
  }
  return rows_of(option, file, TN_F32, {});
}

RunInputs Loader::load() {
  const auto open = [](std::string_view option, const std::string& spec) {
    return spec.empty() || is_made_up(spec) ? std::optional<TensorFile>() : open_file(option, spec);
  };
  if (is_made_up(options_.x))
    user_error("--x {}: x must come from a file, which gives the shape", printable(options_.x));
  const TensorFile x = open_file("--x", options_.x);
  const std::optional<TensorFile> weight = open("--weight", options_.weight);
  const std::optional<TensorFile> bias = open("--bias", options_.bias);
  find_normalized(x, weight, bias);
  read_rows_option();

  // Without a residual, the backward's x is s, which lies in the residual stream's type.
  const bool x_is_s = settings_.backward && options_.residual.empty();
  in_.x = rows_of("--x", x, x_is_s ? residual_dtype() : settings_.dtype, in_.normalized);
  in_.residual = matrix("--residual", options_.residual, residual_dtype(), in_.x.dtype());
  in_.dy = matrix("--dy", options_.dy, settings_.dtype, in_.x.dtype());
  in_.ds = matrix("--ds", options_.ds, residual_dtype(), in_.s_dtype());
  in_.weight = parameter("--weight", options_.weight, weight);
  in_.bias = parameter("--bias", options_.bias, bias);
  in_.mean = statistic("--mean", options_.mean);
  in_.rstd = statistic("--rstd", options_.rstd);
  return std::move(in_);
}

}  // namespace

std::vector<int64_t> RunInputs::matrix_shape() const { return joined(leading, normalized); }

RunInputs load_inputs(const RunOptions& options, const RunSettings& settings) {
  return Loader(options, settings).load();
}

std::vector<std::string> input_paths(const RunOptions& options) {
  std::vector<std::string> paths;
  for (const std::string* spec : {&options.x, &options.residual, &options.weight, &options.bias, &options.dy,
                                  &options.ds, &options.mean, &options.rstd}) {
    if (!spec->empty() && !is_made_up(*spec)) paths.push_back(TensorFile::path_of(*spec));
  }
  return paths;
}

}  // namespace truenorm::cli
