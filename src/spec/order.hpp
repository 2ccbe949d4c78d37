// The order of every sum: the one table. Changing anything here changes bits, and so the version.
//
// Along a row (reduce.hpp): elements are taken in pairs, a pair being fma(a1, b1, a0 * b0); blocks of kBlock elements
// sum their pairs in a neighbour-first balanced tree; block sums are summed in a neighbour-first balanced tree.
//
// Down the rows, for the weight gradients: row r belongs to strip r mod strips(N); a strip adds its rows in order,
// starting from +0; strips are summed in a neighbour-first balanced tree, and +0 is added, so that a zero sum is +0 and
// it matters nowhere whether strips without rows, which count as +0, were really added.
#pragma once

#include "spec/config.hpp"

namespace truenorm::spec {

inline constexpr std::int32_t kOrderVersion = 1;

// 32 GPU threads of eight elements: one 16-byte vector of a 16-bit type each. The pair form costs 11 instructions for
// the eight (a chain of FMAs 8, multiply-then-tree 15), is two to four times shorter in latency than the chain, and on
// a CPU is two vector operations on the even and odd halves that unpacking a 16-bit type gives anyway.
inline constexpr int kBlock = 256;
inline constexpr int kPairs = kBlock / 2;

// Strips for rows of `n` elements: always a power of two, a multiple of what one GPU block of 128 takes side by side: a
// strip for each of 16 warps (two where a row is half a warp), for each half of the block, for the block, or for a pair
// of blocks. 64 and 128 blocks ran within 1 % of 66 and 132 on a GPU with 132 multiprocessors. The tree over a block's
// strips, which are neighbours, is then the block's own.
inline constexpr std::int64_t kBlocksOfStrips = 128;
inline constexpr std::int64_t kNarrow = 1024;
inline constexpr std::int64_t kMiddle = 2048;
inline constexpr std::int64_t kWide = 4096;

TN_FN std::int64_t strips(std::int64_t n) {
  if (n <= 128) return 32 * kBlocksOfStrips;
  if (n <= kNarrow) return 16 * kBlocksOfStrips;
  if (n <= kMiddle) return 2 * kBlocksOfStrips;
  return n <= kWide ? kBlocksOfStrips : kBlocksOfStrips / 2;
}

}  // namespace truenorm::spec
