// Rows of a 16-bit type that start anywhere, by pieces: sixteen bytes at a multiple of sixteen, of which a chunk of
// such a row has the end of one and the beginning of the next. Shifting them into place takes fifteen instructions.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/chunk.cuh"
#include "cuda/tuning/forward.hpp"

namespace truenorm::cuda {

__device__ __forceinline__ int into_piece(const void* p) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(p) & (kPiece - 1));
}

// How many bytes of a piece are there, of `left` from its first on.
__device__ __forceinline__ int part_of_piece(int left) { return left < 0 ? 0 : left > kPiece ? kPiece : left; }

// The sixteen bytes that start `into` bytes, an even number below sixteen, behind the first of a.
__device__ __forceinline__ uint4 from_pieces(const uint4& a, const uint4& b, int into) {
  const unsigned int in[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  unsigned int two[6], one[5];
#pragma unroll
  for (int i = 0; i < 6; ++i) two[i] = (into & 8) != 0 ? in[i + 2] : in[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) one[i] = (into & 4) != 0 ? two[i + 1] : two[i];
  const int bits = 8 * (into & 2);
  return make_uint4(__funnelshift_r(one[0], one[1], bits), __funnelshift_r(one[1], one[2], bits),
                    __funnelshift_r(one[2], one[3], bits), __funnelshift_r(one[3], one[4], bits));
}

// The sixteen bytes that start `before` bytes, an even number below sixteen, ahead of b, which follows a.
__device__ __forceinline__ uint4 to_piece(const uint4& a, const uint4& b, int before) {
  const unsigned int in[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  unsigned int two[6], one[5];
#pragma unroll
  for (int i = 0; i < 6; ++i) two[i] = (before & 8) != 0 ? in[i] : in[i + 2];
#pragma unroll
  for (int i = 0; i < 5; ++i) one[i] = (before & 4) != 0 ? two[i] : two[i + 1];
  const int bits = 8 * (before & 2);
  return make_uint4(__funnelshift_l(one[0], one[1], bits), __funnelshift_l(one[1], one[2], bits),
                    __funnelshift_l(one[2], one[3], bits), __funnelshift_l(one[3], one[4], bits));
}

// Stores elements [first, end) of a piece's eight.
__device__ __forceinline__ void store_part(std::byte* piece, int first, int end, const uint4& of) {
  const unsigned int words[4] = {of.x, of.y, of.z, of.w};
  auto* const to = reinterpret_cast<unsigned short*>(piece);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (first <= i && i < end) to[i] = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
  }
}

// The same by eight lanes of a run, an element each: the piece that lane `from` of the run has. All of the warp call.
__device__ __forceinline__ void store_part_together(std::byte* piece, int first, int end, const uint4& of, int from,
                                                    int in_run, int lanes) {
  const auto ask = [&](unsigned int word) { return __shfl_sync(0xffffffffu, word, from, lanes); };
  const unsigned int x = ask(of.x), y = ask(of.y), z = ask(of.z), w = ask(of.w);
  const unsigned int low = (in_run & 2) != 0 ? y : x, high = (in_run & 2) != 0 ? w : z;
  const unsigned int word = (in_run & 4) != 0 ? high : low;
  if (first <= in_run && in_run < end) {
    reinterpret_cast<unsigned short*>(piece)[in_run] = static_cast<unsigned short>(word >> (in_run % 2 * 16));
  }
}

// Stores the chunks that a run of lanes has of a row, chunk after chunk from the first on: each lane the piece that its
// chunk begins or ends in, with the end of its neighbour's.
class PieceStore {
 public:
  // `columns`: of the row; 0 of none.
  __device__ __forceinline__ PieceStore(std::byte* row, int columns, int in_run, int lanes)
      : row_(row), columns_(columns), in_run_(in_run), lanes_(lanes), before_(into_piece(row)) {}

  // All lanes of the warp call. `column`: of this lane's chunk; `first`, `last`: whether it is the run's first, or
  // last, turn.
  __device__ __forceinline__ void store(const uint4& chunk, int column, bool first, bool last) {
    const bool at_end = in_run_ == lanes_ - 1;
    const uint4 give = select(at_end, last_, chunk);
    const int neighbour = (in_run_ + lanes_ - 1) & (lanes_ - 1);
    const auto ask = [&](unsigned int word) { return __shfl_sync(0xffffffffu, word, neighbour, lanes_); };
    const uint4 left = make_uint4(ask(give.x), ask(give.y), ask(give.z), ask(give.w));
    last_ = chunk;
    const int shift = before_ / 2, own = column - shift, there = columns_ - own;  // elements from the piece's start on
    const uint4 piece = to_piece(left, chunk, before_);
    const bool head = first && in_run_ == 0 && shift != 0;
    std::byte* const to = row_ + std::int64_t{own} * 2;
    if (there >= kChunk && !head) *reinterpret_cast<uint4*>(to) = piece;
    // What is stored element by element: where the run begins and ends in the middle of a piece, and where the row
    // ends.
    const uint4 rest = to_piece(chunk, chunk, before_);  // the last lane's, of the next piece
    const int rest_there = min(there - kChunk, shift);
    if (lanes_ < kChunk) {
      if (head || (there > 0 && there < kChunk)) store_part(to, head ? shift : 0, there, piece);
      if (last && at_end) store_part(to + kPiece, 0, rest_there, rest);
      return;
    }
    const int run_there = there + in_run_ * kChunk;  // from the run's first piece of this turn on
    std::byte* const run_to = to - in_run_ * kPiece;
    if (first && __any_sync(0xffffffffu, shift != 0)) {
      store_part_together(run_to, shift, shift == 0 ? 0 : min(run_there, kChunk), piece, 0, in_run_, lanes_);
    }
    // The piece in which the row ends, unless it is the head.
    const int end_piece = run_there / kChunk;
    const bool ends_here =
        run_there > 0 && run_there % kChunk != 0 && end_piece < lanes_ && !(first && shift != 0 && end_piece == 0);
    if (__any_sync(0xffffffffu, ends_here)) {
      store_part_together(run_to + end_piece * kPiece, 0, ends_here ? run_there % kChunk : 0, piece,
                          end_piece & (lanes_ - 1), in_run_, lanes_);
    }
    if (last && __any_sync(0xffffffffu, shift != 0)) {
      store_part_together(run_to + lanes_ * kPiece, 0, min(run_there - lanes_ * kChunk, shift), rest, lanes_ - 1,
                          in_run_, lanes_);
    }
  }

 private:
  std::byte* row_;
  int columns_, in_run_, lanes_, before_;
  uint4 last_ = {};
};

}  // namespace truenorm::cuda
