// Blocks of up to 256 elements between storage and FP32, and their sums: what every kernel is made of.
// Included once per instruction set, inside that set's namespace; `Simd` is its vocabulary (targets/).
//
// A block shorter than 256 (a row's last) is padded with zeros to the next power of two, at least kMinBlock. Its tree
// then lacks only levels that would add +0, which reduce.hpp's TreeSum does once at the end.

inline constexpr std::int64_t kMinBlock = 32;

inline std::int64_t padded_size(std::int64_t n) {
  std::int64_t size = kMinBlock;
  while (size < n) size *= 2;
  return size;
}

struct alignas(64) Buffer {
  float v[kBlock];
};

// `n` elements widened to FP32 and padded with zeros to `size`.
inline void widen(Type type, const std::byte* src, std::int64_t n, std::int64_t size, float* dst) {
  const std::int64_t whole = n - n % Simd::kWidth;
  switch (type) {
    case Type::f32: {
      const auto* p = reinterpret_cast<const float*>(src);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store(dst + i, Simd::load(p + i));
      for (std::int64_t i = whole; i < n; ++i) dst[i] = p[i];
      break;
    }
    case Type::f16: {
      const auto* p = reinterpret_cast<const std::uint16_t*>(src);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store(dst + i, Simd::load_f16(p + i));
      for (std::int64_t i = whole; i < n; ++i) dst[i] = spec::widen_f16(p[i]);
      break;
    }
    case Type::bf16: {
      const auto* p = reinterpret_cast<const std::uint16_t*>(src);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store(dst + i, Simd::load_bf16(p + i));
      for (std::int64_t i = whole; i < n; ++i) dst[i] = spec::widen_bf16(p[i]);
      break;
    }
  }
  for (std::int64_t i = n; i < size; ++i) dst[i] = 0.0f;
}

// The block as FP32: in place where it is FP32 and whole, else in `buffer`.
inline const float* load_block(Type type, const std::byte* src, std::int64_t n, std::int64_t size, float* buffer) {
  if (type == Type::f32 && n == size) return reinterpret_cast<const float*>(src);
  widen(type, src, n, size, buffer);
  return buffer;
}

// Rounds to the storage type and stores. With `stream`, past the caches where the address allows.
inline void narrow(Type type, std::byte* dst, std::int64_t n, const float* src, bool stream) {
  const std::int64_t whole = n - n % Simd::kWidth;
  switch (type) {
    case Type::f32: {
      auto* p = reinterpret_cast<float*>(dst);
      if (stream && Simd::can_stream(p)) {
        for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::stream(p + i, Simd::load(src + i));
      } else {
        for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store(p + i, Simd::load(src + i));
      }
      for (std::int64_t i = whole; i < n; ++i) p[i] = src[i];
      break;
    }
    case Type::f16: {
      auto* p = reinterpret_cast<std::uint16_t*>(dst);
      if (stream && Simd::can_stream(p)) {
        for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::stream_f16(p + i, Simd::load(src + i));
      } else {
        for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store_f16(p + i, Simd::load(src + i));
      }
      for (std::int64_t i = whole; i < n; ++i) p[i] = spec::narrow_f16(src[i]);
      break;
    }
    case Type::bf16: {
      auto* p = reinterpret_cast<std::uint16_t*>(dst);
      if (stream && Simd::can_stream(p)) {
        for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::stream_bf16(p + i, Simd::load(src + i));
      } else {
        for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store_bf16(p + i, Simd::load(src + i));
      }
      for (std::int64_t i = whole; i < n; ++i) p[i] = spec::narrow_bf16(src[i]);
      break;
    }
  }
}

// Computes a block's results, `compute(i)` giving the vector at element i, and stores them as `type`. A whole block
// goes straight to memory, past the caches with `stream` where the address allows; another by way of `buffer`.
template <class Compute>
[[gnu::always_inline]] inline void store_block(Type type, std::byte* dst, std::int64_t n, std::int64_t size,
                                               bool stream, float* buffer, const Compute& compute) {
  const bool past_caches = stream && Simd::can_stream(dst);
  if (n < size) {
    for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::store(buffer + i, compute(i));
    narrow(type, dst, n, buffer, stream);
  } else if (type == Type::f32) {
    auto* p = reinterpret_cast<float*>(dst);
    if (past_caches) {
      for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::stream(p + i, compute(i));
    } else {
      for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::store(p + i, compute(i));
    }
  } else if (type == Type::bf16) {
    auto* p = reinterpret_cast<std::uint16_t*>(dst);
    if (past_caches) {
      for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::stream_bf16(p + i, compute(i));
    } else {
      for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::store_bf16(p + i, compute(i));
    }
  } else {
    auto* p = reinterpret_cast<std::uint16_t*>(dst);
    if (past_caches) {
      for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::stream_f16(p + i, compute(i));
    } else {
      for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::store_f16(p + i, compute(i));
    }
  }
}

// Asks for the same block of the row that comes next, so that it travels while this one is computed and stored. `row`
// may be null.
inline void prefetch_block(Type type, const std::byte* row, std::int64_t column, std::int64_t n) {
  if (row == nullptr) return;
  const std::byte* const begin = row + column * size_of(type);
  const std::byte* const end = begin + n * size_of(type);
  for (const std::byte* p = begin; p < end; p += 64) __builtin_prefetch(p, 0, 2);
}

inline Simd::F rounded_to(Type type, Simd::F v) {
  if (type == Type::bf16) return Simd::round_bf16(v);
  if (type == Type::f16) return Simd::round_f16(v);
  return v;
}

// weight + offset for one block; ones where there is no weight.
inline const float* weight_block(const Vec& weight, float offset, std::int64_t column, std::int64_t n,
                                 std::int64_t size, float* buffer) {
  if (!weight.present) {
    const Simd::F one = Simd::set(spec::kNoWeight);
    for (std::int64_t i = 0; i < size; i += Simd::kWidth) Simd::store(buffer + i, one);
    return buffer;
  }
  const std::byte* src = weight.data + column * size_of(weight.type);
  if (offset == 0.0f) return load_block(weight.type, src, n, size, buffer);
  widen(weight.type, src, n, size, buffer);
  const Simd::F o = Simd::set(offset);
  for (std::int64_t i = 0; i < size; i += Simd::kWidth) {
    Simd::store(buffer + i, Elements::effective_weight(Simd::load(buffer + i), o));
  }
  for (std::int64_t i = n; i < size; ++i) buffer[i] = 0.0f;  // missing elements are +0 in every operand of a sum
  return buffer;
}

// ---- Sums of a block, in the published tree; several at once where they share their loads.

template <int V>
struct Sums {
  Simd::F v[V];
};

// The tree over `Leaves` (a power of two) vectors of pair sums. terms(i) gives those of elements i .. i + 2 * width
// - 1. Depth-first, so that few registers are live.
template <int V, int Leaves, class PairTerms>
[[gnu::always_inline]] inline Sums<V> tree_node(const PairTerms& terms, std::int64_t first) {
  if constexpr (Leaves == 1) {
    return terms(first);
  } else {
    const Sums<V> left = tree_node<V, Leaves / 2>(terms, first);
    const Sums<V> right = tree_node<V, Leaves / 2>(terms, first + Leaves * Simd::kWidth);
    Sums<V> sum;
    for (int k = 0; k < V; ++k) {
      sum.v[k] = Simd::add(Simd::evens(left.v[k], right.v[k]), Simd::odds(left.v[k], right.v[k]));
    }
    return sum;
  }
}

template <int V, int Size, class PairTerms>
[[gnu::always_inline]] inline void tree_of(const PairTerms& terms, spec::TreeSum* const (&sums)[V]) {
  const Sums<V> block = tree_node<V, Size / (2 * Simd::kWidth)>(terms, 0);
  for (int k = 0; k < V; ++k) sums[k]->push(Simd::tree(block.v[k]));
}

// Pushes the block's V sums.
template <int V, class PairTerms>
[[gnu::always_inline]] inline void push_block(std::int64_t size, const PairTerms& terms,
                                              spec::TreeSum* const (&sums)[V]) {
  switch (size) {
    case 32: return tree_of<V, 32>(terms, sums);
    case 64: return tree_of<V, 64>(terms, sums);
    case 128: return tree_of<V, 128>(terms, sums);
    default: return tree_of<V, 256>(terms, sums);
  }
}

// Two vectors of neighbouring elements as their even and odd ones: a pair in each place.
struct Pairs {
  Simd::F even, odd;
  Pairs(Simd::F a0, Simd::F a1) : even(Simd::evens(a0, a1)), odd(Simd::odds(a0, a1)) {}
};
inline Simd::F products(const Pairs& a, const Pairs& b) {
  return spec::pair_of_products<Simd>(a.even, b.even, a.odd, b.odd);
}
// A pair of products with 1 is a sum: fma(a1, 1, a0 * 1) = a1 + a0.
inline Simd::F plain(const Pairs& a) { return Simd::add(a.odd, a.even); }

inline void push_squares(const float* a, std::int64_t size, spec::TreeSum& sum) {
  const auto terms = [a](std::int64_t i) {
    const Pairs p(Simd::load(a + i), Simd::load(a + i + Simd::kWidth));
    return Sums<1>{{products(p, p)}};
  };
  push_block<1>(size, terms, {&sum});
}

inline void push_plain(const float* a, std::int64_t size, spec::TreeSum& sum) {
  const auto terms = [a](std::int64_t i) {
    return Sums<1>{{plain(Pairs(Simd::load(a + i), Simd::load(a + i + Simd::kWidth)))}};
  };
  push_block<1>(size, terms, {&sum});
}
