// overlap() and rows_overlap() against sets of bytes, over random small views.
#include "api/overlap.hpp"

#include <gtest/gtest.h>

#include <set>

#include "support/random.hpp"

namespace truenorm::test {
namespace {

using api::Extent;

char memory[64];  // only addresses are looked at

Extent random_extent(Rng& rng) {
  Extent e;
  e.data = memory + rng.below(60);
  e.outer = rng.below(5);
  e.inner = rng.below(5);
  e.outer_stride = rng.below(40);
  e.inner_stride = rng.below(20);
  e.length = rng.between(0, 8);
  if (rng.chance(0.5)) {  // a sensible one: the larger stride clears what the smaller one spans
    e.inner_stride = e.length + rng.below(6);
    e.outer_stride = e.inner * e.inner_stride + rng.below(9);
    if (rng.chance(0.3)) {
      std::swap(e.inner, e.outer);
      std::swap(e.inner_stride, e.outer_stride);
    }
  }
  return e;
}

struct Touched {
  std::set<std::int64_t> bytes;
  bool twice = false;
};

Touched touched(const Extent& e) {
  Touched t;
  for (std::int64_t i = 0; i < e.outer; ++i) {
    for (std::int64_t j = 0; j < e.inner; ++j) {
      for (std::int64_t k = 0; k < e.length; ++k) {
        const std::int64_t byte = e.data - memory + i * e.outer_stride + j * e.inner_stride + k;
        t.twice |= !t.bytes.insert(byte).second;
      }
    }
  }
  return t;
}

bool meet(const Touched& a, const Touched& b) {
  for (const std::int64_t byte : a.bytes) {
    if (b.bytes.contains(byte)) return true;
  }
  return false;
}

bool same_form(const Extent& a, const Extent& b) {
  return a.outer == b.outer && a.inner == b.inner && a.length == b.length && a.outer_stride == b.outer_stride &&
         a.inner_stride == b.inner_stride;
}

TEST(Overlap, IsExactForEqualFormsAndApartRangesAndNeverMissesOne) {
  Rng rng(18);
  int apart_but_interleaved = 0;
  for (int i = 0; i < 200000; ++i) {
    const Extent a = random_extent(rng);
    Extent b = random_extent(rng);
    if (i % 2 == 0) {
      const char* data = b.data;
      b = a;
      b.data = data;
    }
    const Touched ta = touched(a), tb = touched(b);
    const bool truth = meet(ta, tb), said = api::overlap(a, b);
    ASSERT_EQ(said, api::overlap(b, a)) << i;
    ASSERT_TRUE(said || !truth) << i;
    const bool empty = ta.bytes.empty() || tb.bytes.empty();
    const bool ranges_apart = empty || *ta.bytes.rbegin() < *tb.bytes.begin() || *tb.bytes.rbegin() < *ta.bytes.begin();
    ASSERT_TRUE(said == truth || !(same_form(a, b) || ranges_apart)) << i;
    apart_but_interleaved += same_form(a, b) && !ranges_apart && !truth;
  }
  EXPECT_GT(apart_but_interleaved, 1000) << "the interesting case was not met";
}

TEST(Overlap, RowsOfOneView) {
  Rng rng(19);
  int exact = 0, apart = 0;
  for (int i = 0; i < 200000; ++i) {
    const Extent e = random_extent(rng);
    const bool truth = touched(e).twice, said = api::rows_overlap(e);
    ASSERT_TRUE(said || !truth) << i;
    const bool inner_smaller = e.inner_stride <= e.outer_stride;
    const std::int64_t small = inner_smaller ? e.inner_stride : e.outer_stride;
    const std::int64_t large = inner_smaller ? e.outer_stride : e.inner_stride;
    const std::int64_t count = inner_smaller ? e.inner : e.outer;
    if (large < (count - 1) * small + e.length) continue;
    ASSERT_EQ(said, truth) << i;
    ++exact;
    apart += !truth;
  }
  EXPECT_GT(exact, 10000);
  EXPECT_GT(apart, 10000);
}

TEST(Overlap, LongViewsCountAsOverlapping) {
  constexpr std::int64_t many = (std::int64_t{1} << 20) + 1;
  const Extent a{memory, many, many, many * 64, 16, 8};
  Extent b = a;
  b.data += 8;
  EXPECT_TRUE(api::overlap(a, b));  // too many rows both ways to walk
  Extent c = a, d = b;
  c.outer = d.outer = 100;
  EXPECT_FALSE(api::overlap(c, d));
}

// Such views are not memory, but a caller may describe them; the sanitized build sees sums that overflow.
TEST(Overlap, StridesNearTheLimitOfTheirType) {
  for (const std::int64_t outer : {std::int64_t{1} << 62, (std::int64_t{1} << 61) + 8}) {
    for (const std::int64_t inner : {std::int64_t{0}, std::int64_t{1} << 60, (std::int64_t{1} << 62) - 512}) {
      const Extent a{memory, 2, 2, outer, inner, 256};
      for (const std::int64_t distance : {std::int64_t{0}, inner, outer, outer + inner - 1, outer + inner + 255}) {
        Extent b = a;
        b.data = reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(memory) +
                                               static_cast<std::uintptr_t>(distance));
        EXPECT_TRUE(api::overlap(a, b));
      }
    }
  }
}

}  // namespace
}  // namespace truenorm::test
