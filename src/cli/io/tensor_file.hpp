#pragma once

#include <memory>
#include <string>

#include "cli/io/mapped_file.hpp"
#include "cli/io/stored_tensor.hpp"

namespace truenorm::cli {

// One tensor of a file, as the command line names it.
class TensorFile {
 public:
  // `spec` is FILE.npy, or FILE.safetensors[:NAME], where NAME may be left out if the file has one tensor. Throws
  // UserError naming the file, also for a tensor whose type truenorm does not compute with.
  explicit TensorFile(const std::string& spec);

  const std::string& path() const { return path_; }
  const StoredTensor& tensor() const { return tensor_; }  // its bytes live as long as this object

  // The file that `spec` names.
  static std::string path_of(const std::string& spec);

 private:
  std::string path_;
  std::unique_ptr<MappedFile> file_;
  StoredTensor tensor_;
};

}  // namespace truenorm::cli
