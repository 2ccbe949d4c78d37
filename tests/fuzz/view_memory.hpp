// Memory for tensor views: each in an allocation that ends where the view does, so that AddressSanitizer sees any step
// outside, with a memory of what it held and of which bytes a call may write.
#pragma once

#include <truenorm/truenorm.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace truenorm::fuzz {

struct Block {
  explicit Block(size_t bytes) : memory(new std::byte[bytes]), size(bytes), writable(bytes) {}

  std::unique_ptr<std::byte[]> memory;
  size_t size;
  std::vector<std::byte> before;
  std::vector<bool> writable;
};

class Memory {
 public:
  // Reading here is a fault.
  static void* nowhere() { return reinterpret_cast<void*>(uintptr_t{64}); }

  // False once a view could not be given memory, being nonsense or too large; it then points nowhere.
  bool complete() const { return complete_; }

  // A block by number, wrapping round; none where there are none.
  Block* any_block(size_t number) { return blocks_.empty() ? nullptr : &blocks_[number % blocks_.size()]; }

  // A block of the view's own, in which it starts `lead` elements late; filled from `seed`.
  void put(tn_tensor& view, size_t lead, uint32_t seed) {
    const std::optional<Reach> reach = reach_of(view);
    if (!reach) {
      complete_ = false;
      view.data = nowhere();
      return;
    }
    Block& block = blocks_.emplace_back(end(view, *reach, lead));
    for (size_t i = 0; i < block.size; ++i) {
      block.memory[i] = static_cast<std::byte>((seed + static_cast<uint32_t>(i)) * 2654435761U >> 24U);
    }
    block.before.assign(block.memory.get(), block.memory.get() + block.size);
    view.data = block.memory.get() + start(view, *reach, lead);
  }

  // Into a block that is there already, if it has room.
  bool put_into(Block& block, tn_tensor& view, size_t lead) {
    const std::optional<Reach> reach = reach_of(view);
    if (!reach || end(view, *reach, lead) > block.size) return false;
    view.data = block.memory.get() + start(view, *reach, lead);
    return true;
  }

  // The elements of this view may be written.
  void allow(const tn_tensor& view) {
    const std::optional<Reach> reach = reach_of(view);
    if (!reach || reach->low > reach->high) return;
    const auto* data = static_cast<const std::byte*>(view.data);
    const auto element = static_cast<int64_t>(tn_dtype_size(view.dtype));
    for (Block& block : blocks_) {
      if (data < block.memory.get() || data >= block.memory.get() + block.size) continue;
      for_each_element(view, [&](int64_t offset) {
        const int64_t first = data - block.memory.get() + offset * element;
        for (int64_t byte = first; byte < std::min(first + element, static_cast<int64_t>(block.size)); ++byte) {
          if (byte >= 0) block.writable[static_cast<size_t>(byte)] = true;
        }
      });
    }
  }

  // Is every byte as it was, but those that may be written, where `written`?
  bool unharmed(bool written) const {
    for (const Block& block : blocks_) {
      for (size_t i = 0; i < block.size; ++i) {
        if (block.memory[i] != block.before[i] && !(written && block.writable[i])) return false;
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kMaxElements = 1 << 14;

  // The elements that a view touches, as offsets from its data pointer; low > high where there are none.
  struct Reach {
    int64_t low = 0;
    int64_t high = 0;
  };

  static std::optional<Reach> reach_of(const tn_tensor& view) {
    if (view.ndim < 1 || view.ndim > TN_MAX_DIMS || tn_dtype_size(view.dtype) == 0) return std::nullopt;
    __int128 low = 0;
    __int128 high = 0;
    __int128 elements = 1;
    bool none = false;
    for (int d = 0; d < view.ndim; ++d) {
      if (view.shape[d] < 0) return std::nullopt;
      none = none || view.shape[d] == 0;
      elements *= std::max<int64_t>(view.shape[d], 1);
      const __int128 furthest = static_cast<__int128>(std::max<int64_t>(view.shape[d] - 1, 0)) * view.strides[d];
      (furthest < 0 ? low : high) += furthest;
      if (elements > kMaxElements || high - low > kMaxElements) return std::nullopt;
    }
    return none ? Reach{0, -1} : Reach{static_cast<int64_t>(low), static_cast<int64_t>(high)};
  }

  static size_t start(const tn_tensor& view, const Reach& reach, size_t lead) {
    return (lead + static_cast<size_t>(-reach.low)) * tn_dtype_size(view.dtype);
  }
  static size_t end(const tn_tensor& view, const Reach& reach, size_t lead) {
    return start(view, reach, lead) + static_cast<size_t>(reach.high + 1) * tn_dtype_size(view.dtype);
  }

  template <typename Visit>
  static void for_each_element(const tn_tensor& view, Visit visit) {
    int64_t shape[TN_MAX_DIMS] = {1, 1, 1};
    int64_t strides[TN_MAX_DIMS] = {0, 0, 0};
    std::copy_n(view.shape, view.ndim, shape);
    std::copy_n(view.strides, view.ndim, strides);
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        for (int64_t k = 0; k < shape[2]; ++k) visit(i * strides[0] + j * strides[1] + k * strides[2]);
      }
    }
  }

  std::deque<Block> blocks_;
  bool complete_ = true;
};

}  // namespace truenorm::fuzz
