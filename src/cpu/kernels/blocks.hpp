// Rows in blocks of up to 256 elements: how they are read and written. Every kernel is made of this.
// Included once per instruction set, inside that set's namespace; `Simd` is its vocabulary (targets/).
//
// A kernel is compiled for matrices of one type, and works on whole blocks where they lie. A block shorter than 256 (a
// row's last) that is no power of two of at least kMinBlock, and every block of a call whose matrices differ in type,
// is first widened to an FP32 buffer, padded with zeros to that size, and then goes through the FP32 kernel.

constexpr std::int64_t kMinBlock = 32;

inline std::int64_t padded_size(std::int64_t n) {
  std::int64_t size = kMinBlock;
  while (size < n) size *= 2;
  return size;
}

struct alignas(64) Buffer {
  float v[kBlock];
};

inline std::byte* bytes_of(Buffer& b) { return reinterpret_cast<std::byte*>(b.v); }

// Where a block lies in its row: elements [column, column + n), padded to `size`.
struct Block {
  std::int64_t column, n, size;
  bool whole() const { return n == size; }
};

// whole(block) for each block of 256, and rest(block) for what is left of the row. `whole` is inlined with its size
// known.
template <class Whole, class Rest>
[[gnu::always_inline]] inline void for_blocks(std::int64_t n, const Whole& whole, const Rest& rest) {
  constexpr std::int64_t kHead = 128;
  if (n == kHead) return whole(Block{0, kHead, kHead});
  std::int64_t column = 0;
  for (; column + kBlock <= n; column += kBlock) whole(Block{column, kBlock, kBlock});
  if (column < n) rest(Block{column, n - column, padded_size(n - column)});
}
template <class Visit>
inline void for_blocks(std::int64_t n, const Visit& visit) {
  for (std::int64_t column = 0; column < n; column += kBlock) {
    const std::int64_t count = n - column < kBlock ? n - column : kBlock;
    visit(Block{column, count, count == kBlock ? std::int64_t{kBlock} : padded_size(count)});
  }
}

// ---- Registers: 2 * kWidth elements at a time. In a kernel for BF16 matrices they are the even and the odd ones,
// which unpacking gives for free and sums of pairs ask for; in any other the first and the second half.

struct Two {
  Simd::F a, b;
};
constexpr std::int64_t kTwo = 2 * Simd::kWidth;

constexpr bool splits(Type matrices) { return matrices == Type::bf16; }

template <bool kSplit>
[[gnu::always_inline]] inline Two even_odd(Two v) {
  if constexpr (kSplit) return v;
  return {Simd::evens(v.a, v.b), Simd::odds(v.a, v.b)};
}

// Elements i .. i + kTwo - 1 of a matrix's row, in FP32.
template <Type kType>
[[gnu::always_inline]] inline Two load(const std::byte* p, std::int64_t i) {
  if constexpr (kType == Type::f32) {
    const auto* v = reinterpret_cast<const float*>(p) + i;
    return {Simd::load(v), Simd::load(v + Simd::kWidth)};
  } else {
    const auto* v = reinterpret_cast<const std::uint16_t*>(p) + i;
    if constexpr (kType == Type::f16) return {Simd::load_f16(v), Simd::load_f16(v + Simd::kWidth)};
    if constexpr (kType == Type::bf16) return {Simd::load_bf16_even(v), Simd::load_bf16_odd(v)};
  }
}

// Rounds and stores them; with kStream past the caches, where p is aligned for it.
template <Type kType, bool kStream>
[[gnu::always_inline]] inline void store(std::byte* p, std::int64_t i, Two v) {
  if constexpr (kType == Type::f32) {
    auto* to = reinterpret_cast<float*>(p) + i;
    Simd::store<kStream>(to, v.a);
    Simd::store<kStream>(to + Simd::kWidth, v.b);
  } else {
    auto* to = reinterpret_cast<std::uint16_t*>(p) + i;
    if constexpr (kType == Type::f16) {
      Simd::store_f16<kStream>(to, v.a);
      Simd::store_f16<kStream>(to + Simd::kWidth, v.b);
    } else {
      Simd::store_bf16_split<kStream>(to, v.a, v.b);
    }
  }
}

// Such pairs as FP32 in memory.
[[gnu::always_inline]] inline Two load_two(const float* p) { return {Simd::load(p), Simd::load(p + Simd::kWidth)}; }
[[gnu::always_inline]] inline void store_two(float* p, Two v) {
  Simd::store<false>(p, v.a);
  Simd::store<false>(p + Simd::kWidth, v.b);
}

inline Simd::F rounded_to(Type type, Simd::F v) {
  if (type == Type::bf16) return Simd::round_bf16(v);
  if (type == Type::f16) return Simd::round_f16(v);
  return v;
}

// ---- Memory.
// ----------------------------------------------------------------------------------------------------------

// `n` elements widened to FP32 and padded with zeros to `size`.
inline void widen(Type type, const std::byte* src, std::int64_t n, std::int64_t size, float* dst) {
  const std::int64_t whole = n - n % Simd::kWidth;
  switch (type) {
    case Type::f32: {
      const auto* p = reinterpret_cast<const float*>(src);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store<false>(dst + i, Simd::load(p + i));
      for (std::int64_t i = whole; i < n; ++i) dst[i] = p[i];
      break;
    }
    case Type::f16: {
      const auto* p = reinterpret_cast<const std::uint16_t*>(src);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store<false>(dst + i, Simd::load_f16(p + i));
      for (std::int64_t i = whole; i < n; ++i) dst[i] = spec::widen_f16(p[i]);
      break;
    }
    case Type::bf16: {
      const auto* p = reinterpret_cast<const std::uint16_t*>(src);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store<false>(dst + i, Simd::load_bf16(p + i));
      for (std::int64_t i = whole; i < n; ++i) dst[i] = spec::widen_bf16(p[i]);
      break;
    }
  }
  for (std::int64_t i = n; i < size; ++i) dst[i] = 0.0f;
}

// `n` FP32 elements rounded to the storage type.
inline void narrow(Type type, std::byte* dst, std::int64_t n, const float* src) {
  const std::int64_t whole = n - n % Simd::kWidth;
  switch (type) {
    case Type::f32: {
      auto* p = reinterpret_cast<float*>(dst);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store<false>(p + i, Simd::load(src + i));
      for (std::int64_t i = whole; i < n; ++i) p[i] = src[i];
      break;
    }
    case Type::f16: {
      auto* p = reinterpret_cast<std::uint16_t*>(dst);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store_f16<false>(p + i, Simd::load(src + i));
      for (std::int64_t i = whole; i < n; ++i) p[i] = spec::narrow_f16(src[i]);
      break;
    }
    case Type::bf16: {
      auto* p = reinterpret_cast<std::uint16_t*>(dst);
      for (std::int64_t i = 0; i < whole; i += Simd::kWidth) Simd::store_bf16(p + i, Simd::load(src + i));
      for (std::int64_t i = whole; i < n; ++i) p[i] = spec::narrow_bf16(src[i]);
      break;
    }
  }
}

// A row's block for the kernel of kType: where it lies, or in FP32 in `buffer`.
template <Type kType>
[[gnu::always_inline]] inline const std::byte* read_block(Type type, const std::byte* row, const Block& at,
                                                          Buffer& buffer) {
  const std::byte* src = row + at.column * size_of(type);
  if constexpr (kType == Type::f32) {
    if (type == Type::f32 && at.whole()) return src;
    widen(type, src, at.n, at.size, buffer.v);
    return bytes_of(buffer);
  }
  return src;
}

// Where that kernel writes its block; finish_block stores what it wrote to `buffer`.
template <Type kType>
[[gnu::always_inline]] inline std::byte* write_block(Type type, std::byte* row, const Block& at, Buffer& buffer) {
  if (kType == Type::f32 && !(type == Type::f32 && at.whole())) return bytes_of(buffer);
  return row + at.column * size_of(type);
}
[[gnu::always_inline]] inline void finish_block(Type type, std::byte* row, const Block& at, const std::byte* written,
                                                const Buffer& buffer) {
  if (written != reinterpret_cast<const std::byte*>(buffer.v)) return;
  narrow(type, row + at.column * size_of(type), at.n, buffer.v);
}

// s - mean for a block that is not whole, which lies in `buffer`; missing elements stay +0.
inline const std::byte* centre(Buffer& buffer, const Block& at, float mean) {
  for (std::int64_t i = 0; i < at.n; ++i) buffer.v[i] = spec::Elements<spec::Scalar>::centred(buffer.v[i], mean);
  return bytes_of(buffer);
}

inline bool aligned(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p) % Simd::kStreamAlignment == 0; }
// Whether the kernel of kType may store its whole blocks of an output's row (null: of none) past the caches: not those
// that go by a buffer, which would leave the caches before it is read again.
template <Type kType>
inline bool can_stream(const Rows& out, const std::byte* row) {
  return row == nullptr || (out.type == kType && aligned(row));
}

// Up to a block's bytes; with `stream` past the caches where it can be.
inline void copy_bytes(std::byte* dst, const std::byte* src, std::int64_t bytes, bool stream) {
  constexpr std::int64_t kVector = 4 * Simd::kWidth;
  if (!stream || !aligned(dst) || bytes % kVector != 0) {
    __builtin_memcpy(dst, src, static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int64_t i = 0; i < bytes; i += kVector) {
    Simd::store<true>(reinterpret_cast<float*>(dst + i), Simd::load(reinterpret_cast<const float*>(src + i)));
  }
}

// Each pass over a row asks for a share of a row to come, [from, to) in sixteenths, block by block, so that memory is
// never idle while the caches are worked on. Into the second-level cache: the first has no room to spare.
struct Share {
  std::int64_t from, to;
};
[[gnu::always_inline]] inline void prefetch(const std::byte* row, Type type, std::int64_t n, const Block& at,
                                            Share share) {
  if (row == nullptr) return;
  const std::int64_t size = size_of(type), part = share.to - share.from;
  const std::byte* p = row + (n * share.from + at.column * part) * size / 16;
  for (std::int64_t i = 0; i < at.n * part * size / 16; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// ---- The kernel for a call's matrices.
// ----------------------------------------------------------------------------------

// FP32 stands for a mixture too.
inline Type common(Type a, Type b) { return a == b ? a : Type::f32; }
inline Type common(Type a, const Rows& b) { return b.present ? common(a, b.type) : a; }

template <Type kType>
struct TypeOf {
  static constexpr Type value = kType;
};

// fn(TypeOf<matrices>)
template <class Fn>
[[gnu::always_inline]] inline void with_type(Type matrices, const Fn& fn) {
  switch (matrices) {
    case Type::bf16: return fn(TypeOf<Type::bf16>{});
    case Type::f16: return fn(TypeOf<Type::f16>{});
    case Type::f32: return fn(TypeOf<Type::f32>{});
  }
}
