#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "cli/cuda/check.hpp"
#include "cli/cuda/copy.hpp"

namespace truenorm::cli {
namespace {

constexpr int kThreads = 256;
constexpr size_t kMostReads = 3;
constexpr size_t kMostWrites = 2;

struct Arrays {
  const uint4* reads[kMostReads];
  uint4* writes[kMostWrites];
};

// All loads of a thread come before its first store, so that they are under way together.
template <int kReads, int kWrites, int kVectors>
__global__ void __launch_bounds__(kThreads) copy(Arrays arrays, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kVectors) + threadIdx.x;
  uint4 values[kVectors][kReads];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = first + v * kThreads;
#pragma unroll
    for (int r = 0; r < kReads; ++r) {
      if (i < count) values[v][r] = arrays.reads[r][i];
    }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = first + v * kThreads;
    if (i >= count) return;
    uint4 out = values[v][0];
#pragma unroll
    for (int r = 1; r < kReads; ++r) {
      out.x ^= values[v][r].x;
      out.y ^= values[v][r].y;
      out.z ^= values[v][r].z;
      out.w ^= values[v][r].w;
    }
#pragma unroll
    for (int w = 0; w < kWrites; ++w) arrays.writes[w][i] = out;
  }
}

template <int kVectors>
void launch(size_t reads, size_t writes, const Arrays& arrays, int64_t count, cudaStream_t stream) {
  using Kernel = void (*)(Arrays, int64_t);
  static constexpr Kernel kKernels[kMostReads][kMostWrites] = {{copy<1, 1, kVectors>, copy<1, 2, kVectors>},
                                                               {copy<2, 1, kVectors>, copy<2, 2, kVectors>},
                                                               {copy<3, 1, kVectors>, copy<3, 2, kVectors>}};
  constexpr int64_t kEach = kThreads * kVectors;
  const auto blocks = static_cast<unsigned>((count + kEach - 1) / kEach);
  kKernels[reads - 1][writes - 1]<<<blocks, kThreads, 0, stream>>>(arrays, count);
  check_cuda(cudaGetLastError(), "launching a copy");
}

}  // namespace

void copy_on_stream(const CopySet& set, int vectors, const DeviceStream& stream) {
  const size_t reads = set.reads.size();
  const size_t writes = set.writes.size();
  if (reads < 1 || reads > kMostReads || writes < 1 || writes > kMostWrites) {
    throw std::logic_error("a copy of this many arrays has no kernel");
  }
  Arrays arrays{};
  for (size_t i = 0; i < reads; ++i) arrays.reads[i] = reinterpret_cast<const uint4*>(set.reads[i].data());
  for (size_t i = 0; i < writes; ++i) arrays.writes[i] = reinterpret_cast<uint4*>(set.writes[i].data());
  const auto count = static_cast<int64_t>((set.reads[0].size() + sizeof(uint4) - 1) / sizeof(uint4));
  if (count == 0) return;
  const auto on = static_cast<cudaStream_t>(stream.get());
  switch (vectors) {
    case 1: return launch<1>(reads, writes, arrays, count, on);
    case 2: return launch<2>(reads, writes, arrays, count, on);
    case 4: return launch<4>(reads, writes, arrays, count, on);
    default: throw std::logic_error("a copy of this many vectors a thread has no kernel");
  }
}

}  // namespace truenorm::cli
