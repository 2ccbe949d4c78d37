#include "reference/tensor.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "reference/format.hpp"

namespace truenorm::reference {
namespace {

// Every FP16 value, by its bits.
const double* f16_values() {
  static const auto table = [] {
    std::vector<double> values(65536);
    for (uint32_t bits = 0; bits < 65536; ++bits) values[bits] = decode(TN_F16, bits);
    return values;
  }();
  return table.data();
}

// The address of a row's first element.
char* row_address(const tn_tensor& tensor, int64_t row) {
  int64_t offset = 0;
  for (int dim = tensor.ndim - 2; dim >= 0; --dim) {
    offset += row % tensor.shape[dim] * tensor.strides[dim];
    row /= tensor.shape[dim];
  }
  const int64_t element_size = tensor.dtype == TN_F32 ? 4 : 2;
  return static_cast<char*>(tensor.data) + offset * element_size;
}

template <typename T>
T read(const char* address, int64_t index) {
  T value;
  std::memcpy(&value, address + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void write(char* address, int64_t index, T value) {
  std::memcpy(address + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

int64_t columns(const tn_tensor& tensor) { return tensor.shape[tensor.ndim - 1]; }

int64_t rows(const tn_tensor& tensor) {
  int64_t product = 1;
  for (int dim = 0; dim < tensor.ndim - 1; ++dim) product *= tensor.shape[dim];
  return product;
}

void load_row(const tn_tensor& tensor, int64_t row, double* out) {
  const char* address = row_address(tensor, row);
  const int64_t n = columns(tensor);
  switch (tensor.dtype) {
    case TN_F32:
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(read<float>(address, i));
      break;
    case TN_F16: {
      const double* values = f16_values();
      for (int64_t i = 0; i < n; ++i) out[i] = values[read<uint16_t>(address, i)];
      break;
    }
    case TN_BF16:
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = static_cast<uint32_t>(read<uint16_t>(address, i)) << 16;
        out[i] = static_cast<double>(std::bit_cast<float>(bits));
      }
      break;
    default: throw std::invalid_argument("the oracle was given an absent tensor to read");
  }
}

std::vector<double> load_vector(const tn_tensor& tensor) {
  std::vector<double> out(static_cast<size_t>(columns(tensor)));
  load_row(tensor, 0, out.data());
  return out;
}

void store_row(const tn_tensor& tensor, int64_t row, const double* values) {
  char* address = row_address(tensor, row);
  const int64_t n = columns(tensor);
  if (tensor.dtype == TN_F32) {
    // A double that is an FP32 value converts exactly.
    for (int64_t i = 0; i < n; ++i) write(address, i, static_cast<float>(round_to(kF32, values[i])));
  } else if (tensor.dtype == TN_BF16) {
    for (int64_t i = 0; i < n; ++i) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(round_to(kBf16, values[i])));
      write(address, i, static_cast<uint16_t>(bits >> 16));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) write(address, i, static_cast<uint16_t>(encode(tensor.dtype, values[i])));
  }
}

}  // namespace truenorm::reference
