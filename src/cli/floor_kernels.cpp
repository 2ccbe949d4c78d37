#include "cli/floor_kernels.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace truenorm::cli {
namespace {

using Kernel = void (*)(const CopyLines&);

#if defined(__x86_64__)

template <size_t Reads, size_t Writes, bool Streaming>
[[gnu::target("avx512f")]] void lines_avx512(const CopyLines& lines) {
  for (size_t at = 0; at < lines.bytes; at += 64) {
    __m512i value = _mm512_loadu_si512(lines.reads[0] + at);
    for (size_t r = 1; r < Reads; ++r) value = _mm512_xor_si512(value, _mm512_loadu_si512(lines.reads[r] + at));
    for (size_t w = 0; w < Writes; ++w) {
      if constexpr (Streaming) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(lines.writes[w] + at), value);
      } else {
        _mm512_storeu_si512(lines.writes[w] + at, value);
      }
    }
  }
  if constexpr (Streaming) _mm_sfence();
}

// Every x86-64 has these. A line at a time, so that streaming stores leave as whole lines.
template <size_t Reads, size_t Writes, bool Streaming>
void lines_sse2(const CopyLines& lines) {
  for (size_t at = 0; at < lines.bytes; at += 64) {
    for (size_t i = at; i < at + 64; i += 16) {
      const auto load = [&](size_t r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines.reads[r] + i)); };
      __m128i value = load(0);
      for (size_t r = 1; r < Reads; ++r) value = _mm_xor_si128(value, load(r));
      for (size_t w = 0; w < Writes; ++w) {
        auto* to = reinterpret_cast<__m128i*>(lines.writes[w] + i);
        if constexpr (Streaming) {
          _mm_stream_si128(to, value);
        } else {
          _mm_storeu_si128(to, value);
        }
      }
    }
  }
  if constexpr (Streaming) _mm_sfence();
}

template <size_t Reads, size_t Writes, bool Streaming>
Kernel kernel_for() {
  static const bool wide = __builtin_cpu_supports("avx512f");
  return wide ? &lines_avx512<Reads, Writes, Streaming> : &lines_sse2<Reads, Writes, Streaming>;
}

#else

// Left to the compiler's vectors.
template <size_t Reads, size_t Writes>
void lines_plain(const CopyLines& lines) {
  for (size_t at = 0; at < lines.bytes; at += 64) {
    uint64_t value[8];
    std::memcpy(value, lines.reads[0] + at, sizeof(value));
    for (size_t r = 1; r < Reads; ++r) {
      uint64_t more[8];
      std::memcpy(more, lines.reads[r] + at, sizeof(more));
      for (int i = 0; i < 8; ++i) value[i] ^= more[i];
    }
    for (size_t w = 0; w < Writes; ++w) std::memcpy(lines.writes[w] + at, value, sizeof(value));
  }
}

template <size_t Reads, size_t Writes, bool Streaming>
Kernel kernel_for() {
  return &lines_plain<Reads, Writes>;
}

#endif

template <size_t Reads, bool Streaming>
Kernel kernel_with(size_t writes) {
  return writes == 1 ? kernel_for<Reads, 1, Streaming>() : kernel_for<Reads, 2, Streaming>();
}

template <bool Streaming>
Kernel kernel_with(size_t reads, size_t writes) {
  switch (reads) {
    case 1: return kernel_with<1, Streaming>(writes);
    case 2: return kernel_with<2, Streaming>(writes);
    case 3: return kernel_with<3, Streaming>(writes);
    default: return kernel_with<4, Streaming>(writes);
  }
}

}  // namespace

void copy_lines(const CopyLines& lines, bool streaming) {
  const Kernel kernel = streaming ? kernel_with<true>(lines.read_count, lines.write_count)
                                  : kernel_with<false>(lines.read_count, lines.write_count);
  kernel(lines);
}

bool can_stream() {
#if defined(__x86_64__)
  return true;
#else
  return false;
#endif
}

void read_all(std::span<const std::byte> bytes) {
  uint64_t sum[8] = {};
  size_t at = 0;
  for (; at + sizeof(sum) <= bytes.size(); at += sizeof(sum)) {
    uint64_t line[8];
    std::memcpy(line, bytes.data() + at, sizeof(line));
    for (int i = 0; i < 8; ++i) sum[i] ^= line[i];
  }
  for (; at < bytes.size(); ++at) sum[0] ^= static_cast<uint64_t>(bytes[at]);
  asm volatile("" : : "r"(sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7]));
}

}  // namespace truenorm::cli
