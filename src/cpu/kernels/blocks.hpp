// Blocks of up to 256 elements between storage and FP32, and their sums: what every kernel is made of.
// Included once per instruction set, inside that set's namespace; `Simd` is its vocabulary (targets/).
//
// A block shorter than 256 (a row's last) is padded with zeros to the next power of two, at least kMinBlock. Its tree
// then lacks only levels that would add +0, which reduce.hpp's TreeSum does once at the end.

constexpr std::int64_t kMinBlock = 32;

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

// Where a block's FP32 results may be computed: straight into an FP32 output when it is whole, else in `buffer`, from
// where finish_block stores them.
inline float* result_block(Type type, std::byte* dst, std::int64_t n, std::int64_t size, bool stream, float* buffer) {
  return type == Type::f32 && n == size && !stream ? reinterpret_cast<float*>(dst) : buffer;
}
inline void finish_block(Type type, std::byte* dst, std::int64_t n, const float* result, bool stream) {
  if (reinterpret_cast<const std::byte*>(result) != dst) narrow(type, dst, n, result, stream);
}

// Asks for the same block of the row that comes next, so that it travels while this one is computed and stored. `row`
// may be null.
inline void prefetch_block(Type type, const std::byte* row, std::int64_t column, std::int64_t n) {
  if (row == nullptr) return;
  const std::byte* const begin = row + column * size_of(type);
  const std::byte* const end = begin + n * size_of(type);
  for (const std::byte* p = begin; p < end; p += 64) __builtin_prefetch(p);
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

// ---- Sums of a block, in the published tree. `terms(i)` gives the vectors at elements i .. i + 2 * width - 1 as
// pairs.

// Depth-first, so that few registers are live. `Leaves` is a power of two: vectors of pair sums below this node.
template <int Leaves, class PairTerms>
[[gnu::always_inline]] inline Simd::F tree_node(const PairTerms& terms, std::int64_t first) {
  if constexpr (Leaves == 1) {
    return terms(first);
  } else {
    const Simd::F left = tree_node<Leaves / 2>(terms, first);
    const Simd::F right = tree_node<Leaves / 2>(terms, first + Leaves * Simd::kWidth);
    return Simd::add(Simd::evens(left, right), Simd::odds(left, right));
  }
}

template <int Size, class PairTerms>
[[gnu::always_inline]] inline float tree_of(const PairTerms& terms) {
  constexpr int kLeaves = Size / (2 * Simd::kWidth);
  return Simd::tree(tree_node<kLeaves>(terms, 0));
}

template <class PairTerms>
[[gnu::always_inline]] inline float block_tree(std::int64_t size, const PairTerms& terms) {
  switch (size) {
    case 32: return tree_of<32>(terms);
    case 64: return tree_of<64>(terms);
    case 128: return tree_of<128>(terms);
    default: return tree_of<256>(terms);
  }
}

// sum(a * b)
inline float sum_of_products(const float* a, const float* b, std::int64_t size) {
  return block_tree(size, [a, b](std::int64_t i) {
    const Simd::F a0 = Simd::load(a + i), a1 = Simd::load(a + i + Simd::kWidth);
    const Simd::F b0 = Simd::load(b + i), b1 = Simd::load(b + i + Simd::kWidth);
    return spec::pair_of_products<Simd>(Simd::evens(a0, a1), Simd::evens(b0, b1), Simd::odds(a0, a1),
                                        Simd::odds(b0, b1));
  });
}

// sum(a^2)
inline float sum_of_squares(const float* a, std::int64_t size) {
  return block_tree(size, [a](std::int64_t i) {
    const Simd::F a0 = Simd::load(a + i), a1 = Simd::load(a + i + Simd::kWidth);
    const Simd::F even = Simd::evens(a0, a1), odd = Simd::odds(a0, a1);
    return spec::pair_of_products<Simd>(even, even, odd, odd);
  });
}

// sum(a): the pair with b = 1 is a1 + a0.
inline float sum_of(const float* a, std::int64_t size) {
  return block_tree(size, [a](std::int64_t i) {
    const Simd::F a0 = Simd::load(a + i), a1 = Simd::load(a + i + Simd::kWidth);
    return Simd::add(Simd::odds(a0, a1), Simd::evens(a0, a1));
  });
}
