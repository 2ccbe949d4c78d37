// numpy's .npy format, versions 1.0 to 3.0 (numpy/lib/format.py).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/io/stored_tensor.hpp"

namespace truenorm::cli {

// Reads a whole file's bytes. `label` names the file in messages. Throws UserError for anything but one dense,
// C-ordered, little-endian array that fills the file exactly; a type that truenorm does not compute with gives
// dtype TN_DTYPE_NONE.
StoredTensor read_npy(std::span<const std::byte> file, std::string_view label);

// The bytes that come before the data in a version 1.0 file; a multiple of 64 long. Throws UserError for BF16, which
// numpy does not have.
std::string npy_header(const OutputTensor& tensor);

}  // namespace truenorm::cli
