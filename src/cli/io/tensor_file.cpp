#include "cli/io/tensor_file.hpp"

#include <algorithm>
#include <vector>

#include "cli/error.hpp"
#include "cli/io/npy.hpp"
#include "cli/io/safetensors.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr std::string_view kNpy = ".npy";
constexpr std::string_view kSafetensors = ".safetensors";

StoredTensor pick(std::vector<StoredTensor> tensors, const std::string& name, const std::string& label) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const StoredTensor& tensor) { return tensor.name == name; });
  if (found != tensors.end()) return std::move(*found);
  if (name.empty() && tensors.size() == 1) return std::move(tensors.front());
  if (tensors.empty()) user_error("{}: it holds no tensors", label);

  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) names.push_back(tensor.name);
  std::vector<std::string> near = nearest_names(name, names, 3);
  std::transform(near.begin(), near.end(), near.begin(), [](const std::string& text) { return printable(text); });
  if (name.empty()) {
    user_error("{}: it holds {} tensors: name one after a ':', such as {}", label, tensors.size(), near.front());
  }
  user_error("{}: it has no tensor {}; near names: {}", label, printable(name), fmt::join(near, ", "));
}

void require_computable(const StoredTensor& tensor, const std::string& label) {
  if (tensor.dtype != TN_DTYPE_NONE) return;
  const std::string what = tensor.name.empty() ? label : fmt::format("{}: tensor {}", label, printable(tensor.name));
  if (tensor.stored_type.find_first_of("Vv") == 1) {
    user_error("{}: its type '{}' is raw bytes (bf16, perhaps, which numpy does not have): use a .safetensors", what,
               tensor.stored_type);
  }
  user_error("{}: its type is {}, and f32, f16 and bf16 are what can be computed with", what, tensor.stored_type);
}

}  // namespace

std::string TensorFile::path_of(const std::string& spec) {
  // A tensor's name may hold colons too, so the first one after an ending that is known counts.
  for (const std::string_view ending : {kSafetensors, kNpy}) {
    const size_t at = spec.find(std::string(ending) + ':');
    if (at != std::string::npos) return spec.substr(0, at + ending.size());
  }
  return spec;
}

TensorFile::TensorFile(const std::string& spec) : path_(path_of(spec)) {
  const std::string name = path_.size() < spec.size() ? spec.substr(path_.size() + 1) : std::string();
  const bool npy = path_.ends_with(kNpy);
  if (!npy && !path_.ends_with(kSafetensors)) {
    user_error("{} is neither a .npy nor a .safetensors file (with the tensor's name after a ':')", printable(spec));
  }
  if (npy && path_ != spec) user_error("{}: a .npy holds one array, which has no name", printable(spec));
  const std::string label = printable(path_);
  file_ = std::make_unique<MappedFile>(path_);
  tensor_ = npy ? read_npy(file_->bytes(), label) : pick(read_safetensors(file_->bytes(), label), name, label);
  require_computable(tensor_, label);
}

}  // namespace truenorm::cli
