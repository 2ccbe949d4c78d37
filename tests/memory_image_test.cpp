// The layout in which tensors travel to a device: what a call sees there is what it would have seen here.
#include "cli/memory_image.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace truenorm::cli {
namespace {

constexpr size_t kAlign = MemoryImage::kAlignment;

struct Bytes {
  alignas(kAlign) std::array<std::byte, 8192> data{};
  std::byte* at(size_t offset) { return data.data() + offset; }
};

tn_tensor strided(void* data, int64_t rows, int64_t n, int64_t stride) {
  tn_tensor tensor = tn_matrix(data, TN_F32, rows, n);
  tensor.strides[0] = stride;
  return tensor;
}

TEST(MemoryImage, AddressesKeepTheirAlignment) {
  Bytes host, there;
  const std::array inputs{tn_vector(host.at(4), TN_F32, 10), tn_vector(host.at(1038), TN_BF16, 7)};
  const std::array outputs{tn_vector(host.at(2048 + 16), TN_F32, 100)};
  const MemoryImage image(inputs, outputs);
  ASSERT_EQ(image.pieces().size(), 3U);
  size_t end = 0;
  for (const auto& piece : image.pieces()) {
    EXPECT_EQ(piece.offset % kAlign, reinterpret_cast<uintptr_t>(piece.host) % kAlign);
    EXPECT_GE(piece.offset, end);
    end = piece.offset + piece.size;
    EXPECT_EQ(piece.written, piece.host == host.at(2048 + 16));
  }
  EXPECT_LE(end, image.size());
  EXPECT_LE(image.size(), there.data.size());
  const tn_tensor moved = image.moved(inputs[1], there.at(0));
  EXPECT_EQ(moved.data, there.at(image.pieces()[1].offset));
  EXPECT_EQ(moved.dtype, TN_BF16);
  EXPECT_EQ(moved.shape[0], 7);
}

TEST(MemoryImage, InPlaceStaysInPlaceAndGapsTravel) {
  Bytes host, there;
  const tn_tensor x = strided(host.at(64), 3, 4, 10);
  const tn_tensor inside = strided(host.at(64 + 16), 3, 4, 10);  // in the gaps of x
  const tn_tensor after = tn_vector(host.at(64 + 4 * (2 * 10 + 8)), TN_F32, 2);
  const std::array inputs{x, inside};
  const std::array outputs{x, after};
  const MemoryImage image(inputs, outputs);
  ASSERT_EQ(image.pieces().size(), 2U);
  EXPECT_EQ(image.pieces()[0].host, host.at(64));
  EXPECT_EQ(image.pieces()[0].size, 4U * (2 * 10 + 4) + 16U);
  EXPECT_TRUE(image.pieces()[0].written);
  const auto place = [&](const tn_tensor& tensor) {
    return static_cast<std::byte*>(image.moved(tensor, there.at(0)).data);
  };
  EXPECT_EQ(place(inside) - place(x), 16);
  EXPECT_EQ(place(after), there.at(image.pieces()[1].offset));
  EXPECT_EQ(image.moved(x, there.at(0)).strides[0], 10);
}

TEST(MemoryImage, AbsentAndEmptyTensorsHaveNoMemory) {
  Bytes host, there;
  const std::array inputs{tn_tensor{}, tn_matrix(host.at(12), TN_F32, 0, 64)};
  const MemoryImage image(inputs, {});
  EXPECT_TRUE(image.pieces().empty());
  EXPECT_EQ(image.moved(inputs[0], there.at(0)).dtype, TN_DTYPE_NONE);
  EXPECT_EQ(image.moved(inputs[0], there.at(0)).data, nullptr);
  EXPECT_EQ(image.moved(inputs[1], there.at(0)).data, there.at(12));
  EXPECT_GE(image.size(), kAlign);
}

}  // namespace
}  // namespace truenorm::cli
