#include "cli/memory_image.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>

namespace truenorm::cli {
namespace {

size_t misalignment(const void* data) { return reinterpret_cast<uintptr_t>(data) % MemoryImage::kAlignment; }

// From the first byte of a tensor to its last.
size_t span_bytes(const tn_tensor& tensor) {
  int64_t last = 0;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) return 0;
    last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  return static_cast<size_t>(last + 1) * tn_dtype_size(tensor.dtype);
}

}  // namespace

MemoryImage::MemoryImage(std::span<const tn_tensor> inputs, std::span<const tn_tensor> outputs) {
  std::vector<Piece> spans;
  const auto add = [&](const tn_tensor& tensor, bool written) {
    const size_t bytes = tensor.dtype == TN_DTYPE_NONE ? 0 : span_bytes(tensor);
    if (bytes > 0) spans.push_back({static_cast<std::byte*>(tensor.data), bytes, 0, written});
  };
  for (const tn_tensor& tensor : inputs) add(tensor, false);
  for (const tn_tensor& tensor : outputs) add(tensor, true);
  std::sort(spans.begin(), spans.end(), [](const Piece& a, const Piece& b) { return a.host < b.host; });
  for (const Piece& span : spans) {
    if (!pieces_.empty() && span.host < pieces_.back().host + pieces_.back().size) {
      Piece& piece = pieces_.back();
      piece.size = std::max(piece.size, static_cast<size_t>(span.host - piece.host) + span.size);
      piece.written = piece.written || span.written;
    } else {
      pieces_.push_back(span);
    }
  }
  for (Piece& piece : pieces_) {
    piece.offset = size_ + misalignment(piece.host);
    size_ = (piece.offset + piece.size + kAlignment - 1) / kAlignment * kAlignment;
  }
}

tn_tensor MemoryImage::moved(const tn_tensor& tensor, std::byte* base) const {
  if (tensor.dtype == TN_DTYPE_NONE || tensor.data == nullptr) return tensor;
  tn_tensor there = tensor;
  if (span_bytes(tensor) == 0) {
    there.data = base + misalignment(tensor.data);
    return there;
  }
  auto* const data = static_cast<std::byte*>(tensor.data);
  const auto after =
      std::upper_bound(pieces_.begin(), pieces_.end(), data,
                       [](const std::byte* address, const Piece& piece) { return address < piece.host; });
  if (after == pieces_.begin()) throw std::logic_error("a tensor that is not in the image");
  const Piece& piece = *std::prev(after);
  there.data = base + piece.offset + (data - piece.host);
  return there;
}

}  // namespace truenorm::cli
