// The safetensors format (github.com/huggingface/safetensors, "Format"): a 64-bit little-endian header length, a JSON
// header that names each tensor's type, shape and byte range, and the data, which the ranges cover without hole or
// overlap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/io/stored_tensor.hpp"

namespace truenorm::cli {

// Every tensor of a file, in the order of the data. `label` names the file in messages. Throws UserError for anything
// the format does not allow. Types of the format that truenorm does not compute with give dtype TN_DTYPE_NONE.
std::vector<StoredTensor> read_safetensors(std::span<const std::byte> file, std::string_view label);

struct SafetensorsLayout {
  std::string header;         // the bytes before the data, length included; a multiple of 8 long
  std::vector<size_t> order;  // indices into the tensors, in the order in which their data follows, without padding
};

// Wide types come first, so that each tensor is aligned to its element size.
SafetensorsLayout safetensors_layout(std::span<const OutputTensor> tensors);

}  // namespace truenorm::cli
