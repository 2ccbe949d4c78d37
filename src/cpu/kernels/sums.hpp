// Sums along a row in the published tree. Included once per instruction set, inside that set's namespace.

// Two sums side by side.
struct Sums {
  Simd::F a, b;
};

[[gnu::always_inline]] inline Simd::F merge(Simd::F left, Simd::F right) {
  return Simd::add(Simd::evens(left, right), Simd::odds(left, right));
}
[[gnu::always_inline]] inline Sums merge(const Sums& left, const Sums& right) {
  return {merge(left.a, right.a), merge(left.b, right.b)};
}

template <std::int64_t kSize, class Leaf>
[[gnu::noinline]] auto tree_branch(const Leaf& leaf, std::int64_t first);

// Depth-first, so that few registers are live. A leaf sums the pairs of kTwo elements. Narrow vectors make many leaves:
// they are not all laid out in one piece of code.
template <std::int64_t kSize, class Leaf>
[[gnu::always_inline]] inline auto tree_node(const Leaf& leaf, std::int64_t first) {
  constexpr std::int64_t kInlined = 16 * kTwo;
  if constexpr (kSize == kTwo) {
    return leaf(first);
  } else if constexpr (kSize > kInlined) {
    const auto left = tree_branch<kSize / 2>(leaf, first);
    const auto right = tree_branch<kSize / 2>(leaf, first + kSize / 2);
    return merge(left, right);
  } else {
    const auto left = tree_node<kSize / 2>(leaf, first);
    const auto right = tree_node<kSize / 2>(leaf, first + kSize / 2);
    return merge(left, right);
  }
}

template <std::int64_t kSize, class Leaf>
[[gnu::noinline]] auto tree_branch(const Leaf& leaf, std::int64_t first) {
  return tree_node<kSize>(leaf, first);
}

// A vector whose own tree (Simd::tree) is the block's sum.
template <class Leaf>
[[gnu::always_inline]] inline auto block_tree(std::int64_t size, const Leaf& leaf) {
  switch (size) {
    case 32: return tree_node<32>(leaf, 0);
    case 64: return tree_node<64>(leaf, 0);
    case 128: return tree_node<128>(leaf, 0);
    default: return tree_node<256>(leaf, 0);
  }
}

// spec::TreeSum over blocks that are still vectors. To merge two vectors is to take one step in the tree of each of
// their blocks and, once those are done, in the tree over blocks; so a single vector's tree ends all of them at once.
class RowSum {
 public:
  RowSum() {}  // leaves the sums, which are large, as they are
  void clear() { count_ = 0; }

  void push(Simd::F v) {
    int level = 0;
    for (; (count_ >> level) & 1u; ++level) v = merge(partial_[level], v);
    partial_[level] = v;
    ++count_;
  }

  // After one push at least.
  float finish() const {
    int level = __builtin_ctzll(count_);
    Simd::F v = partial_[level];
    while (count_ >> ++level) {
      if ((count_ >> level) & 1u) v = merge(partial_[level], v);
    }
    return spec::Scalar::add(Simd::tree(v), 0.0f);
  }

 private:
  std::uint64_t count_ = 0;
  Simd::F partial_[56];  // as many levels as the blocks of a 64-bit N can fill
};

// The pairs of a sum, from even and odd elements; of sum(a), where b is 1, a pair is a1 + a0.
[[gnu::always_inline]] inline Simd::F pairs(Two v) { return Simd::add(v.b, v.a); }
[[gnu::always_inline]] inline Simd::F pairs_of_products(Two v, Two w) {
  return spec::pair_of_products<Simd>(v.a, w.a, v.b, w.b);
}
