// read_safetensors on any bytes: a refusal in one line, or tensors that cover the data exactly.
#include <algorithm>
#include <string>
#include <vector>

#include "cli/elements.hpp"
#include "cli/error.hpp"
#include "cli/io/safetensors.hpp"
#include "cli/io/shape.hpp"
#include "refusal.hpp"

using namespace truenorm;

namespace {

// Those that can be computed with, written again, read as the same.
void check_copy(const std::vector<cli::StoredTensor>& tensors) {
  std::vector<cli::OutputTensor> outputs;
  for (const cli::StoredTensor& tensor : tensors) {
    // The name of the notes is no tensor's; the writer is never given it.
    if (tensor.dtype != TN_DTYPE_NONE) outputs.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  const cli::SafetensorsLayout layout = cli::safetensors_layout(outputs);
  std::string file = layout.header;
  for (const size_t index : layout.order) {
    file.append(reinterpret_cast<const char*>(outputs[index].bytes.data()), outputs[index].bytes.size());
  }
  const auto copies = cli::read_safetensors(std::as_bytes(std::span(file)), "copy");
  fuzz::require(copies.size() == outputs.size(), "a copy has as many tensors");
  for (const cli::StoredTensor& copy : copies) {
    const auto same = [&](const cli::OutputTensor& output) {
      return output.name == copy.name && output.dtype == copy.dtype && output.shape == copy.shape &&
             std::equal(output.bytes.begin(), output.bytes.end(), copy.bytes.begin(), copy.bytes.end());
    };
    fuzz::require(std::any_of(outputs.begin(), outputs.end(), same), "a copy reads as the same");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const std::vector<cli::StoredTensor> tensors = cli::read_safetensors(file, "file");
    size_t covered = 0;
    for (const cli::StoredTensor& tensor : tensors) {
      covered += tensor.bytes.size();
      cli::checksum(tensor.bytes);  // reads every byte
      const auto count = cli::element_count(tensor.shape);
      fuzz::require(count.has_value(), "a shape that is accepted can be counted");
      fuzz::require(tensor.dtype == TN_DTYPE_NONE ||
                        static_cast<size_t>(*count) * tn_dtype_size(tensor.dtype) == tensor.bytes.size(),
                    "the data are as large as shape and type say");
    }
    fuzz::require(size >= 8 + covered, "the tensors fit the file");
    check_copy(tensors);
  } catch (const cli::UserError& error) {
    fuzz::check_refusal(error.what());
  }
  return 0;
}
