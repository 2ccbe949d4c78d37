// The forward kernels. Included once per instruction set, inside that set's namespace.
//
// A few rows go through each pass together, so that one's division and square root need not be waited for. A row is
// read from memory once: later passes find it in the cache.

constexpr std::int64_t kForwardRows = 4;
constexpr std::int64_t kForwardBytes = 16 << 10;  // that the rows of a batch take of the first-level cache

// The rows of s. With a residual the first pass makes s and leaves it at home, where later passes find it.
struct ForwardRow {
  const std::byte *x, *residual;  // residual null: s is x
  std::byte* s;                   // null: not asked for
  std::byte* home;                // null: no place for it, and every pass makes it again
  std::byte* y;                   // null: not asked for
  const std::byte *next_x, *next_residual;
  float mean, rstd;
  RowSum sum, squares;
};

// What the first pass sums: s for the mean, or its squares.
template <Type kType, bool kLayer>
[[gnu::always_inline]] inline Simd::F block_first(const std::byte* s, std::int64_t size) {
  return block_tree(
      size, [=](std::int64_t i) __attribute__((always_inline)) {
        const Two v = even_odd<splits(kType)>(load<kType>(s, i));
        return kLayer ? pairs(v) : pairs_of_products(v, v);
      });
}

// Sums of d = s - mean and of d^2.
template <Type kType>
[[gnu::always_inline]] inline Sums block_moments(const std::byte* s, std::int64_t size, float of) {
  const Simd::F mean = Simd::set(of);
  return block_tree(
      size, [=](std::int64_t i) __attribute__((always_inline)) {
        const Two v = load<kType>(s, i);
        const Two d = even_odd<splits(kType)>({Elements::centred(v.a, mean), Elements::centred(v.b, mean)});
        return Sums{pairs(d), pairs_of_products(d, d)};
      });
}

// A block of y. `bias` may be null; xhat is rounded to `xhat_type`, where that is not FP32.
template <Type kType, bool kLayer, bool kStream>
[[gnu::always_inline]] inline void block_output(const ForwardRow& row, const std::byte* s, const float* weight,
                                                const float* bias, Type xhat_type, std::byte* y, std::int64_t size) {
  const Simd::F mean = Simd::set(row.mean), rstd = Simd::set(row.rstd), none = Simd::set(spec::kNoAddend);
  const auto run = [&](auto has_bias, auto rounds) __attribute__((always_inline)) {
    const auto xhat = [&](Simd::F v) __attribute__((always_inline)) {
      if constexpr (kLayer) v = Elements::centred(v, mean);
      v = Elements::normalised(v, rstd);
      return rounds ? rounded_to(kType == Type::f32 ? xhat_type : kType, v) : v;
    };
    for (std::int64_t i = 0; i < size; i += kTwo) {
      const Two v = load<kType>(s, i), w = load_two(weight + i);
      Two b{none, none};
      if constexpr (has_bias) b = load_two(bias + i);
      store<kType, kStream>(y, i, {Elements::output(xhat(v.a), w.a, b.a), Elements::output(xhat(v.b), w.b, b.b)});
    }
  };
  using Yes = std::true_type;
  using No = std::false_type;
  if (kLayer || xhat_type == Type::f32) {
    bias != nullptr ? run(Yes{}, No{}) : run(No{}, No{});
  } else {
    bias != nullptr ? run(Yes{}, Yes{}) : run(No{}, Yes{});
  }
}

// The same out of line, for the blocks of which a row has at most one.
template <Type kType, bool kLayer>
[[gnu::noinline]] Simd::F block_first_apart(const std::byte* s, std::int64_t size) {
  return block_first<kType, kLayer>(s, size);
}
template <Type kType>
[[gnu::noinline]] Sums block_moments_apart(const std::byte* s, std::int64_t size, float mean) {
  return block_moments<kType>(s, size, mean);
}
template <Type kType, bool kLayer>
[[gnu::noinline]] void block_output_apart(const ForwardRow& row, const std::byte* s, const float* weight,
                                          const float* bias, Type xhat_type, std::byte* y, std::int64_t size) {
  block_output<kType, kLayer, false>(row, s, weight, bias, xhat_type, y, size);
}

template <Type kType, bool kLayer>
class Forward {
 public:
  explicit Forward(const ForwardPlan& plan)
      : p(plan),
        row_bytes(plan.n * size_of(plan.residual.present ? plan.s_type : plan.x.type)),
        weight(plan.weight, spec::effective_offset(plan.offset), spec::kNoWeight, plan.n),
        bias(plan.bias, spec::kNoAddend, spec::kNoAddend, plan.n) {}

  void run(std::int64_t begin, std::int64_t end) {
    const std::int64_t fit = kForwardBytes / row_bytes;
    const std::int64_t batch = fit < 1 ? 1 : fit > kForwardRows ? kForwardRows : fit;
    for (std::int64_t r = begin; r < end; r += batch) run_batch(r, end - r < batch ? end - r : batch, r + batch);
  }

 private:
  void run_batch(std::int64_t r, std::int64_t count, std::int64_t next) {
    for (std::int64_t k = 0; k < count; ++k) start(rows[k], r + k, next + k, k);
    for (std::int64_t k = 0; k < count; ++k) first_pass(rows[k]);
    for (std::int64_t k = 0; k < count; ++k) first_statistic(rows[k]);
    if constexpr (kLayer) {
      for (std::int64_t k = 0; k < count; ++k) second_pass(rows[k]);
      for (std::int64_t k = 0; k < count; ++k) second_statistic(rows[k]);
    }
    for (std::int64_t k = 0; k < count; ++k) {
      if (p.mean != nullptr) p.mean[r + k] = rows[k].mean;
      if (p.rstd != nullptr) p.rstd[r + k] = rows[k].rstd;
      if (rows[k].y == nullptr) continue;
      const bool stream = p.stream && can_stream<kType>(p.y, rows[k].y);
      stream ? last_pass<true>(rows[k]) : last_pass<false>(rows[k]);
    }
  }

  void start(ForwardRow& row, std::int64_t r, std::int64_t next, std::int64_t place) {
    const auto row_if = [&](const Rows& t, std::int64_t i) { return t.present && i < p.m ? row_of(t, i) : nullptr; };
    row.x = row_of(p.x, r);
    row.residual = row_if(p.residual, r);
    row.s = row_if(p.s, r);
    row.home = row_bytes <= kForwardBytes ? homes + place * row_bytes : row.s;
    row.y = row_if(p.y, r);
    row.next_x = row_if(p.x, next);
    row.next_residual = row_if(p.residual, next);
    row.mean = 0.0f;
    row.sum.clear();
    row.squares.clear();
  }

  void first_pass(ForwardRow& row) const {
    for_blocks(
        p.n,
        [&](const Block& at) __attribute__((always_inline)) {
          first<kType>(row, at);
          prefetch_next(row, at, {0, 4});
        },
        [&](const Block& at) { first_rest(row, at); });
  }
  void second_pass(ForwardRow& row) const {
    for_blocks(
        p.n,
        [&](const Block& at) __attribute__((always_inline)) {
          second<kType>(row, at);
          prefetch_next(row, at, {4, 10});
        },
        [&](const Block& at) { second_rest(row, at); });
  }
  template <bool kStream>
  void last_pass(const ForwardRow& row) const {
    for_blocks(
        p.n,
        [&](const Block& at) __attribute__((always_inline)) {
          output<kType, kStream>(row, at);
          prefetch_next(row, at, {kLayer ? 10 : 4, 16});
        },
        [&](const Block& at) { output_rest(row, at); });
  }
  [[gnu::noinline]] void first_rest(ForwardRow& row, const Block& at) const {
    at.whole() ? first<kType, true>(row, at) : first<Type::f32, true>(row, at);
  }
  [[gnu::noinline]] void second_rest(ForwardRow& row, const Block& at) const {
    at.whole() ? second<kType, true>(row, at) : second<Type::f32, true>(row, at);
  }
  [[gnu::noinline]] void output_rest(const ForwardRow& row, const Block& at) const {
    at.whole() ? output<kType, false, true>(row, at) : output<Type::f32, false, true>(row, at);
    prefetch_next(row, at, {0, 16});
  }
  [[gnu::always_inline]] void prefetch_next(const ForwardRow& row, const Block& at, Share share) const {
    prefetch(row.next_x, p.x.type, p.n, at, share);
    prefetch(row.next_residual, p.residual.type, p.n, at, share);
  }

  void first_statistic(ForwardRow& row) const {
    const float sum = row.sum.finish();
    if constexpr (kLayer) {
      row.mean = spec::Scalar::div(sum, static_cast<float>(p.n));
      row.sum.clear();
    } else {
      row.rstd = spec::rms_rstd(sum, static_cast<float>(p.n), p.eps);
    }
  }
  void second_statistic(ForwardRow& row) const {
    const auto found =
        spec::layer_statistics(row.mean, row.sum.finish(), row.squares.finish(), static_cast<float>(p.n), p.eps);
    row.mean = found.mean;
    row.rstd = found.rstd;
  }

  template <Type kBlockType, bool kApart = false>
  [[gnu::always_inline]] void first(ForwardRow& row, const Block& at) const {
    Buffer b0, b1;
    const std::byte* s = nullptr;
    if (row.residual == nullptr) {
      s = read_block<kBlockType>(p.x.type, row.x, at, b0);
    } else {
      s = add<kBlockType>(row, at, b0, b1);
      if (row.s != nullptr && row.s != row.home) {
        const std::int64_t size = size_of(p.s_type), offset = at.column * size;
        copy_bytes(row.s + offset, row.home + offset, at.n * size, p.stream);
      }
    }
    row.sum.push(kApart ? block_first_apart<kBlockType, kLayer>(s, at.size)
                        : block_first<kBlockType, kLayer>(s, at.size));
  }

  template <Type kBlockType, bool kApart = false>
  [[gnu::always_inline]] void second(ForwardRow& row, const Block& at) const {
    Buffer b0, b1;
    const std::byte* s = again<kBlockType>(row, at, b0, b1);
    float mean = row.mean;
    if (!at.whole()) {
      s = centre(b0, at, mean);
      mean = 0.0f;
    }
    const Sums of =
        kApart ? block_moments_apart<kBlockType>(s, at.size, mean) : block_moments<kBlockType>(s, at.size, mean);
    row.sum.push(of.a);
    row.squares.push(of.b);
  }

  template <Type kBlockType, bool kStream, bool kApart = false>
  [[gnu::always_inline]] void output(const ForwardRow& row, const Block& at) const {
    Buffer b0, b1, wb, bb, yb;
    const std::byte* s = again<kBlockType>(row, at, b0, b1);
    const float* w = weight.template block<kBlockType>(at, wb);
    const float* b = p.bias.present ? bias.template block<kBlockType>(at, bb) : nullptr;
    std::byte* to = write_block<kBlockType>(p.y.type, row.y, at, yb);
    const Type xhat_type = p.round_xhat ? p.xhat_type : Type::f32;
    if constexpr (kApart) {
      block_output_apart<kBlockType, kLayer>(row, s, w, b, xhat_type, to, at.size);
    } else {
      block_output<kBlockType, kLayer, kStream>(row, s, w, b, xhat_type, to, at.size);
    }
    finish_block(p.y.type, row.y, at, to, yb);
  }

  // A block of s, made of x and the residual; at home, or in b0.
  template <Type kBlockType>
  [[gnu::always_inline]] const std::byte* add(const ForwardRow& row, const Block& at, Buffer& b0, Buffer& b1) const {
    const std::byte* x = read_block<kBlockType>(p.x.type, row.x, at, b0);
    const std::byte* residual = read_block<kBlockType>(p.residual.type, row.residual, at, b1);
    std::byte* to = row.home != nullptr ? write_block<kBlockType>(p.s_type, row.home, at, b0) : bytes_of(b0);
    for (std::int64_t i = 0; i < at.size; i += kTwo) {
      const Two u = load<kBlockType>(x, i), v = load<kBlockType>(residual, i);
      store<kBlockType, false>(to, i, {Elements::residual_sum(u.a, v.a), Elements::residual_sum(u.b, v.b)});
    }
    if (kBlockType == Type::f32 && to == bytes_of(b0)) {
      for (std::int64_t i = 0; i < at.size; i += Simd::kWidth) {
        Simd::store<false>(b0.v + i, rounded_to(p.s_type, Simd::load(b0.v + i)));
      }
      if (row.home != nullptr) narrow(p.s_type, row.home + at.column * size_of(p.s_type), at.n, b0.v);
    }
    return to;
  }

  template <Type kBlockType>
  [[gnu::always_inline]] const std::byte* again(const ForwardRow& row, const Block& at, Buffer& b0, Buffer& b1) const {
    if (row.residual == nullptr) return read_block<kBlockType>(p.x.type, row.x, at, b0);
    if (row.home == nullptr) return add<kBlockType>(row, at, b0, b1);
    return read_block<kBlockType>(p.s_type, row.home, at, b0);
  }

  const ForwardPlan& p;
  std::int64_t row_bytes;  // of s
  Weights<kType> weight, bias;
  ForwardRow rows[kForwardRows];
  alignas(64) std::byte homes[kForwardBytes];
};

inline void forward(const ForwardPlan& p, std::int64_t row_begin, std::int64_t row_end) {
  Type matrices = common(p.x.type, p.y);
  if (p.residual.present) matrices = common(common(matrices, p.residual), p.s_type);
  with_type(matrices, [&](auto type) {
    if (p.layer_norm) {
      Forward<decltype(type)::value, true>(p).run(row_begin, row_end);
    } else {
      Forward<decltype(type)::value, false>(p).run(row_begin, row_end);
    }
  });
  if (p.stream) Simd::fence();
}
