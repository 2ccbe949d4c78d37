// Where the memory behind a call's tensors lies when it is copied to another place in one piece.
#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <span>
#include <vector>

namespace truenorm::cli {

// What overlaps in memory stays together, so that an output in place of an input is one there too, and gaps between
// strided rows travel along. Every address keeps its alignment, up to kAlignment.
class MemoryImage {
 public:
  static constexpr size_t kAlignment = 256;

  MemoryImage() = default;
  // Absent tensors and those without elements have no memory.
  MemoryImage(std::span<const tn_tensor> inputs, std::span<const tn_tensor> outputs);

  struct Piece {
    std::byte* host;
    size_t size;
    size_t offset;  // in the image
    bool written;   // holds an output
  };
  std::span<const Piece> pieces() const { return pieces_; }  // by host address; none overlap
  size_t size() const { return size_; }

  // The view of the image at `base`, which is aligned to kAlignment. Absent tensors stay absent.
  tn_tensor moved(const tn_tensor& tensor, std::byte* base) const;

 private:
  std::vector<Piece> pieces_;
  size_t size_ = kAlignment;
};

}  // namespace truenorm::cli
