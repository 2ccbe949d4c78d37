// Memory for a test's tensors, watched: canaries before, after and between the rows, and every byte that is not a
// declared output's must be as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/random.hpp"
#include "support/tensor.hpp"

namespace truenorm::test {

// Where a matrix's rows lie. Strides and offset in elements.
struct Layout {
  int ndim = 2;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  std::int64_t outer_stride = 0;
  std::int64_t inner_stride = 0;
  std::int64_t offset = 0;  // of the first element from a 64-byte boundary
};

Layout dense(std::int64_t rows, std::int64_t n);
// Any split of the rows on two axes, either of them the faster, with gaps, at any alignment.
Layout random_layout(Rng& rng, std::int64_t rows, std::int64_t n);

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  tn_tensor matrix(tn_dtype type, const Layout& layout, std::int64_t n);
  tn_tensor matrix(tn_dtype type, std::int64_t rows, std::int64_t n) { return matrix(type, dense(rows, n), n); }
  tn_tensor vector(tn_dtype type, std::int64_t n, std::int64_t offset = 0);
  std::byte* bytes(std::size_t size, std::size_t offset = 0);

  // The elements of `t` (or `size` bytes at `data`) may change.
  void allow(const tn_tensor& t);
  void allow(const std::byte* data, std::size_t size);
  // From here to `intact`, nothing else may. (With AddressSanitizer, reading the gaps is caught too.)
  void arm();
  testing::AssertionResult intact();

  // All memory of a tensor or of bytes(), canaries included, from where `visit` may copy it and to where it may copy
  // back.
  template <class Visit>
  void for_each_buffer(const Visit& visit) {
    for (Buffer& b : buffers_) visit(b.memory.data(), b.memory.size());
  }

 private:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  struct Buffer {
    std::vector<std::byte> memory;
    std::vector<std::byte> before;
    std::vector<Range> used;
    std::vector<Range> writable;
  };

  Buffer& buffer_of(const std::byte* data);
  std::byte* reserve(std::size_t size, std::size_t offset, Buffer*& buffer);
  void release_gaps();

  std::vector<Buffer> buffers_;
};

}  // namespace truenorm::test
