#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace truenorm::cli {

// A tensor as it lies in a file: dense, row-major, little-endian; the bytes stay in the file's memory and may have any
// alignment. bytes.size() is exactly what shape and type need.
struct StoredTensor {
  std::string name;                // empty in a .npy, which has no names
  std::string stored_type;         // what the file calls its type: "F32", "I64", "<f4"
  tn_dtype dtype = TN_DTYPE_NONE;  // NONE: a type that truenorm does not compute with
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// A tensor to be written, under the same conventions.
struct OutputTensor {
  std::string name;
  tn_dtype dtype = TN_DTYPE_NONE;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

}  // namespace truenorm::cli
