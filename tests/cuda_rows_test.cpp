// Rows as CUDA's kernels find them lie where the interface says.
#include "cuda/device/rows.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace truenorm::cuda {
namespace {

void expect_same_places(std::int64_t inner, std::int64_t m, std::uint32_t r) {
  // Addresses only: nothing is read.
  alignas(16) static std::byte origin[1];
  const spec::Rows rows{origin, spec::Type::bf16, true, inner, 24, 1000003};
  const auto place = [](const std::byte* at) { return reinterpret_cast<std::intptr_t>(at); };
  ASSERT_EQ(place(rows_at(rows, m).at(r)), place(spec::row_of(rows, r))) << inner << " of " << m << ", row " << r;
}

TEST(CudaRows, EveryRowOfEveryShape) {
  for (std::int64_t m = 1; m <= 40; ++m) {
    for (std::int64_t inner = 1; inner <= m + 1; ++inner) {
      for (std::uint32_t r = 0; r < m; ++r) expect_same_places(inner, m, r);
    }
  }
}

TEST(CudaRows, NearMultiplesUpToTheLastRow) {
  constexpr std::int64_t kRows = INT32_MAX;
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const std::int64_t inner = 1 + static_cast<std::int64_t>(random() >> 33 >> (random() % 31));
    const std::int64_t multiple =
        inner * static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kRows / inner + 1));
    for (const std::int64_t r : {multiple - 1, multiple, multiple + 1, kRows - 1}) {
      if (r >= 0 && r < kRows) expect_same_places(inner, kRows, static_cast<std::uint32_t>(r));
    }
  }
}

}  // namespace
}  // namespace truenorm::cuda
