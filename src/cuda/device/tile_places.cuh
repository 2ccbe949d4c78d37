// Places in shared memory that tiles take turns in, where one thread has a whole tile copied there for all warps: two
// barriers for each place. Of sm_90 and later.
#pragma once

#include "cuda/device/async.cuh"

namespace truenorm::cuda {

template <int kPlaces>
class TilePlaces {
  static_assert(kPlaces <= 8);

 public:
  static constexpr int kBarriers = 2 * kPlaces;

  __device__ __forceinline__ explicit TilePlaces(Barrier* barriers) : copied_(barriers), read_(barriers + kPlaces) {}

  // By kBarriers threads, before all of the thread block meet.
  __device__ __forceinline__ void init(int of, int warps) {
    barrier_init(copied_ + of, of < kPlaces ? 1 : warps);
    barrier_init_done_for_copies();
  }

  // By the thread that has a tile copied, which everybody has waited for the place of: how many bytes it is.
  __device__ __forceinline__ Barrier* expect(int place, int bytes) const {
    barrier_arrive_expecting(copied_ + place, static_cast<unsigned int>(bytes));
    return copied_ + place;
  }

  // The tile is there.
  __device__ __forceinline__ void wait_for_copies(int place) {
    barrier_wait(copied_ + place, odd_ >> place & 1u);
    odd_ ^= 1u << place;
    __syncwarp();
  }

  // This warp has read what is there, which may have been copied in any way.
  __device__ __forceinline__ void done(int place, int lane) {
    if (lane == 0) barrier_arrive(read_ + place);
    odd_ ^= 1u << (place + kPlaces);
  }

  // All warps have read what was there last. True as well where nothing was, as of a phase before the first.
  __device__ __forceinline__ void wait_until_read(int place) const {
    barrier_wait(read_ + place, ~odd_ >> (place + kPlaces) & 1u);
  }

 private:
  Barrier *const copied_, *const read_;
  unsigned int odd_ = 0;  // for each place, whether the number of copies waited for is odd; then that of tiles read
};

}  // namespace truenorm::cuda
