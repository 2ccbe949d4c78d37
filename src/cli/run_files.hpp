#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/io/atomic_file.hpp"
#include "cli/io/stored_tensor.hpp"
#include "cli/run_options.hpp"

namespace truenorm::cli {

// The files that one `truenorm run` writes: all of them whole, or none.
class RunFiles {
 public:
  // Reads -o, --out and --json. Throws UserError for a name that is no output of the operation, and for a place that
  // cannot be written, is an input (`inputs` are their paths) or is named twice.
  RunFiles(const RunOptions& options, const RunSettings& settings, const std::vector<std::string>& inputs);

  // The outputs to compute.
  const std::vector<std::string>& outputs() const { return outputs_; }
  // Where `output` goes; empty where nowhere.
  std::string path_of(const std::string& output) const;

  // Throws UserError for an output whose type its file cannot hold. To be called before anything is computed.
  void check_types(const std::vector<OutputTensor>& tensors) const;

  // `json` is for --json FILE. Every file is on the disk before the first takes its name.
  void write(const std::vector<OutputTensor>& tensors, const std::string& json) const;

 private:
  struct Target {
    std::string path;
    std::vector<std::string> outputs;
  };

  void add(const std::string& path, std::vector<std::string> outputs);

  std::vector<std::string> outputs_;
  std::vector<Target> targets_;
  std::string json_path_;
};

}  // namespace truenorm::cli
