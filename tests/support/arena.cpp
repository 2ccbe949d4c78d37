#include "support/arena.hpp"

#include <algorithm>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)
#define TN_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TN_TEST_ASAN 1
#endif
#endif
#if defined(TN_TEST_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace truenorm::test {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMargin = 192;  // more than any vector store, on both sides
constexpr std::byte kCanary{0xa5};    // as an element: tiny and negative in every type
}  // namespace

Layout dense(std::int64_t rows, std::int64_t n) { return {2, 1, rows, 0, n, 0}; }

Layout random_layout(Rng& rng, std::int64_t rows, std::int64_t n) {
  Layout l = dense(rows, n);
  if (rng.chance(0.6)) l.offset = rng.below(33);
  if (rows == 1 && rng.chance(0.3)) {
    l.ndim = 1;
    return l;
  }
  const auto gap = [&] { return rng.chance(0.4) ? 0 : rng.below(rng.chance(0.5) ? 8 : 70); };
  l.inner_stride = n + gap();
  if (rows > 0 && rng.chance(0.4)) {
    l.ndim = 3;
    l.outer = rng.between(1, rows);
    while (rows % l.outer != 0) --l.outer;
    l.inner = rows / l.outer;
    l.outer_stride = l.inner * l.inner_stride + gap();
    if (rng.chance(0.3)) {  // the other axis is the faster one
      l.outer_stride = n + gap();
      l.inner_stride = l.outer * l.outer_stride + gap();
    }
  }
  return l;
}

Arena::~Arena() { release_gaps(); }

std::byte* Arena::reserve(std::size_t size, std::size_t offset, Buffer*& buffer) {
  buffer = &buffers_.emplace_back();
  buffer->memory.assign(size + offset + 2 * kMargin + kAlignment, kCanary);
  std::byte* start = buffer->memory.data() + kMargin;
  start += (kAlignment - reinterpret_cast<std::uintptr_t>(start) % kAlignment) % kAlignment;
  return start + offset;
}

tn_tensor Arena::matrix(tn_dtype type, const Layout& l, std::int64_t n) {
  const auto size = static_cast<std::int64_t>(tn_dtype_size(type));
  const std::int64_t rows = l.outer * l.inner;
  const std::int64_t reach = rows == 0 ? 0 : (l.outer - 1) * l.outer_stride + (l.inner - 1) * l.inner_stride + n;
  Buffer* buffer = nullptr;
  std::byte* data = reserve(static_cast<std::size_t>(reach * size), static_cast<std::size_t>(l.offset * size), buffer);
  tn_tensor t{data, type, l.ndim, {}, {}};
  if (l.ndim == 3) {
    t.shape[0] = l.outer;
    t.strides[0] = l.outer_stride;
  }
  if (l.ndim >= 2) {
    t.shape[l.ndim - 2] = l.inner;
    t.strides[l.ndim - 2] = l.inner_stride;
  }
  t.shape[l.ndim - 1] = n;
  t.strides[l.ndim - 1] = 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto begin = static_cast<std::size_t>(row_at(t, r) - buffer->memory.data());
    buffer->used.push_back({begin, begin + static_cast<std::size_t>(n * size)});
  }
  return t;
}

tn_tensor Arena::vector(tn_dtype type, std::int64_t n, std::int64_t offset) {
  Layout l = dense(1, n);
  l.ndim = 1;
  l.offset = offset;
  return matrix(type, l, n);
}

std::byte* Arena::bytes(std::size_t size, std::size_t offset) {
  Buffer* buffer = nullptr;
  std::byte* data = reserve(size, offset, buffer);
  const auto begin = static_cast<std::size_t>(data - buffer->memory.data());
  buffer->used.push_back({begin, begin + size});
  return data;
}

Arena::Buffer& Arena::buffer_of(const std::byte* data) {
  for (Buffer& b : buffers_) {
    if (data >= b.memory.data() && data <= b.memory.data() + b.memory.size()) return b;
  }
  throw std::logic_error("no buffer of this arena");
}

void Arena::allow(const tn_tensor& t) {
  for (std::int64_t r = 0; r < rows_of(t); ++r) {
    allow(row_at(t, r), static_cast<std::size_t>(columns_of(t)) * tn_dtype_size(t.dtype));
  }
}

void Arena::allow(const std::byte* data, std::size_t size) {
  Buffer& b = buffer_of(data);
  const auto begin = static_cast<std::size_t>(data - b.memory.data());
  b.writable.push_back({begin, begin + size});
}

void Arena::arm() {
  for (Buffer& b : buffers_) {
    b.before = b.memory;
    ASAN_POISON_MEMORY_REGION(b.memory.data(), b.memory.size());
    for (const Range r : b.used) ASAN_UNPOISON_MEMORY_REGION(b.memory.data() + r.begin, r.end - r.begin);
  }
}

void Arena::release_gaps() {
  for (Buffer& b : buffers_) ASAN_UNPOISON_MEMORY_REGION(b.memory.data(), b.memory.size());
}

testing::AssertionResult Arena::intact() {
  release_gaps();
  for (std::size_t k = 0; k < buffers_.size(); ++k) {
    Buffer& b = buffers_[k];
    for (const Range r : b.writable) {
      std::copy_n(b.memory.begin() + static_cast<std::ptrdiff_t>(r.begin), r.end - r.begin,
                  b.before.begin() + static_cast<std::ptrdiff_t>(r.begin));
    }
    const auto [now, was] = std::mismatch(b.memory.begin(), b.memory.end(), b.before.begin());
    if (now != b.memory.end()) {
      return testing::AssertionFailure() << "buffer " << k << " changed at byte " << now - b.memory.begin() << " of "
                                         << b.memory.size() << ", where nothing may be written";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace truenorm::test
