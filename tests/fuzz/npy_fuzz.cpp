// read_npy on any bytes: a refusal in one line, or a tensor whose data lie inside the file and are as large as said.
#include <string>

#include "cli/elements.hpp"
#include "cli/error.hpp"
#include "cli/io/npy.hpp"
#include "cli/io/shape.hpp"
#include "refusal.hpp"

using namespace truenorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const cli::StoredTensor tensor = cli::read_npy(file, "file");
    cli::checksum(tensor.bytes);  // reads every byte
    if (tensor.dtype == TN_DTYPE_NONE) return 0;
    const auto count = cli::element_count(tensor.shape);
    fuzz::require(count && static_cast<size_t>(*count) * tn_dtype_size(tensor.dtype) == tensor.bytes.size(),
                  "the data are as large as shape and type say");
    cli::find_nonfinite(tensor.dtype, tensor.bytes);

    // Written again, it reads as the same.
    std::string again = cli::npy_header({"", tensor.dtype, tensor.shape, tensor.bytes});
    again.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    const cli::StoredTensor copy = cli::read_npy(std::as_bytes(std::span(again)), "copy");
    fuzz::require(copy.shape == tensor.shape && copy.stored_type == tensor.stored_type, "a copy reads as the same");
  } catch (const cli::UserError& error) {
    fuzz::check_refusal(error.what());
  }
  return 0;
}
