#include "cli/run_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/error.hpp"
#include "cli/io/npy.hpp"
#include "cli/io/safetensors.hpp"
#include "cli/run_call.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

namespace fs = std::filesystem;

bool is_npy(const std::string& path) { return path.ends_with(".npy"); }
bool is_safetensors(const std::string& path) { return path.ends_with(".safetensors"); }

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  const auto whole = [&](const std::string& path) { return fs::weakly_canonical(fs::absolute(path), ignored); };
  return fs::equivalent(a, b, ignored) || whole(a) == whole(b);
}

void require_writable(const std::string& path) {
  AtomicFile::require_replaceable(path);
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = (parent.empty() ? "." : parent.string()) + "/.";
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    user_error("cannot write {}: its folder: {}", printable(path), std::strerror(errno));
  }
}

std::unique_ptr<AtomicFile> write_tensors(const std::string& path, const std::vector<OutputTensor>& tensors) {
  auto file = std::make_unique<AtomicFile>(path);
  if (is_npy(path)) {
    file->write(npy_header(tensors.front()));
    file->write(tensors.front().bytes);
    return file;
  }
  const SafetensorsLayout layout = safetensors_layout(tensors);
  file->write(layout.header);
  for (const size_t index : layout.order) file->write(tensors[index].bytes);
  return file;
}

}  // namespace

RunFiles::RunFiles(const RunOptions& options, const RunSettings& settings, const std::vector<std::string>& inputs) {
  const std::vector<std::string> possible = possible_outputs(settings);
  if (options.single.empty()) outputs_ = default_outputs(options, settings);
  if (!options.output.empty()) {
    if (!is_safetensors(options.output)) user_error("-o {}: it must end in .safetensors", printable(options.output));
    add(options.output, outputs_);
  }
  for (const std::string& item : options.single) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const std::string path = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (!is_npy(path) && !is_safetensors(path)) {
      user_error("--out {}: it takes NAME=FILE.npy or NAME=FILE.safetensors", printable(item));
    }
    if (std::find(possible.begin(), possible.end(), name) == possible.end()) {
      user_error("--out {}: {} {} has no output {}; it has {}", printable(item), op_name(settings.op),
                 settings.backward ? "backward" : "forward", printable(name), fmt::join(possible, ", "));
    }
    if (name == "s" && options.residual.empty()) user_error("--out {}: s needs --residual", printable(item));
    if (name == "dweight" && options.weight.empty()) user_error("--out {}: dweight needs --weight", printable(item));
    if (std::find(outputs_.begin(), outputs_.end(), name) != outputs_.end()) {
      user_error("--out {}: {} is asked for twice", printable(item), name);
    }
    outputs_.push_back(name);
    add(path, {name});
  }
  if (!options.json.empty() && options.json != "-") {
    add(options.json, {});
    json_path_ = options.json;
  }
  for (const Target& target : targets_) {
    const auto hit = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const std::string& input) { return same_file(input, target.path); });
    if (hit != inputs.end()) user_error("{} is an input, and would be overwritten", printable(target.path));
  }
}

void RunFiles::add(const std::string& path, std::vector<std::string> outputs) {
  require_writable(path);
  for (const Target& other : targets_) {
    if (same_file(other.path, path)) user_error("{} is to be written twice", printable(path));
  }
  targets_.push_back({path, std::move(outputs)});
}

std::string RunFiles::path_of(const std::string& output) const {
  for (const Target& target : targets_) {
    if (std::find(target.outputs.begin(), target.outputs.end(), output) != target.outputs.end()) return target.path;
  }
  return "";
}

void RunFiles::check_types(const std::vector<OutputTensor>& tensors) const {
  for (const OutputTensor& tensor : tensors) {
    if (is_npy(path_of(tensor.name))) npy_header(tensor);
  }
}

void RunFiles::write(const std::vector<OutputTensor>& tensors, const std::string& json) const {
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (const Target& target : targets_) {
    if (target.path == json_path_) {
      files.push_back(std::make_unique<AtomicFile>(target.path));
      files.back()->write(json);
      continue;
    }
    std::vector<OutputTensor> chosen;
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(chosen),
                 [&](const OutputTensor& tensor) { return path_of(tensor.name) == target.path; });
    files.push_back(write_tensors(target.path, chosen));
  }
  for (const auto& file : files) file->flush();
  for (const auto& file : files) file->commit();
}

}  // namespace truenorm::cli
