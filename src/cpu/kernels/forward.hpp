// The forward kernels. Included once per instruction set, inside that set's namespace.
//
// A row is read from memory once; its second and third pass find it in the cache, as FP32 in `cache` where it fits.

inline constexpr std::int64_t kCachedRow = 4096;

// The blocks of one row of s. The first pass adds the residual, rounds and stores s; later passes read s as stored.
struct ForwardRow {
  const ForwardPlan& p;
  const std::byte* x;
  const std::byte* residual;
  std::byte* s;
  float* cache;

  const float* first(std::int64_t column, std::int64_t n, std::int64_t size, float* buffer, float* other) const {
    float* home = p.n <= kCachedRow ? cache + column : buffer;
    const float* a = load_block(p.x.type, x + column * size_of(p.x.type), n, size, home);
    if (!p.residual.present) return a;
    const float* b = load_block(p.residual.type, residual + column * size_of(p.residual.type), n, size, other);
    for (std::int64_t i = 0; i < size; i += Simd::kWidth) {
      const Simd::F sum = Elements::residual_sum(Simd::load(a + i), Simd::load(b + i));
      Simd::store(home + i, rounded_to(p.s_type, sum));
    }
    if (p.s.present) narrow(p.s_type, s + column * size_of(p.s_type), n, home, false);
    return home;
  }

  const float* again(std::int64_t column, std::int64_t n, std::int64_t size, float* buffer, float* other) const {
    const bool in_memory = p.s.present || !p.residual.present;
    const Rows& source = p.s.present ? p.s : p.x;
    const std::byte* row = p.s.present ? s : x;
    if (in_memory && source.type == Type::f32 && n == size) {
      return reinterpret_cast<const float*>(row) + column;
    }
    if (p.n <= kCachedRow) return cache + column;
    if (in_memory) return load_block(source.type, row + column * size_of(source.type), n, size, buffer);
    return first(column, n, size, buffer, other);
  }
};

template <class Visit>
[[gnu::always_inline]] inline void for_blocks(std::int64_t n, const Visit& visit) {
  for (std::int64_t column = 0; column < n; column += kBlock) {
    const std::int64_t count = n - column < kBlock ? n - column : kBlock;
    visit(column, count, count == kBlock ? std::int64_t{kBlock} : padded_size(count));
  }
}

// d = s - mean over one block: sum(d) and sum(d^2).
inline void push_centred(const float* s, float mean, std::int64_t n, std::int64_t size, spec::TreeSum& sum_d,
                         spec::TreeSum& sum_d2) {
  Buffer d;
  if (n < size) {  // missing elements are +0, not -mean
    for (std::int64_t i = 0; i < n; ++i) d.v[i] = spec::Elements<spec::Scalar>::centred(s[i], mean);
    for (std::int64_t i = n; i < size; ++i) d.v[i] = 0.0f;
    s = d.v;
    mean = 0.0f;
  }
  const Simd::F vmean = Simd::set(mean);
  const auto terms = [s, vmean](std::int64_t i) {
    const Pairs p(Elements::centred(Simd::load(s + i), vmean),
                  Elements::centred(Simd::load(s + i + Simd::kWidth), vmean));
    return Sums<2>{{plain(p), products(p, p)}};
  };
  push_block<2>(size, terms, {&sum_d, &sum_d2});
}

// One block of y from one block of s.
template <bool kLayer>
inline void forward_output(const ForwardPlan& p, float mean, float rstd, const float* s, std::byte* y,
                           std::int64_t column, std::int64_t n, std::int64_t size) {
  Buffer wb, bb, yb;
  const Simd::F vmean = Simd::set(mean), vrstd = Simd::set(rstd), none = Simd::set(spec::kNoAddend);
  const float* w = weight_block(p.weight, p.offset, column, n, size, wb.v);
  std::byte* const dst = y + column * size_of(p.y.type);
  const float* b = nullptr;
  if (p.bias.present) b = load_block(p.bias.type, p.bias.data + column * size_of(p.bias.type), n, size, bb.v);

  const auto xhat = [&](std::int64_t i) {
    Simd::F v = Simd::load(s + i);
    if constexpr (kLayer) v = Elements::centred(v, vmean);
    return Elements::normalised(v, vrstd);
  };
  if (p.round_xhat) {
    store_block(p.y.type, dst, n, size, p.stream, yb.v, [&](std::int64_t i) {
      return Elements::output(rounded_to(p.xhat_type, xhat(i)), Simd::load(w + i),
                              b != nullptr ? Simd::load(b + i) : none);
    });
  } else if (b != nullptr) {
    store_block(p.y.type, dst, n, size, p.stream, yb.v,
                [&](std::int64_t i) { return Elements::output(xhat(i), Simd::load(w + i), Simd::load(b + i)); });
  } else {
    store_block(p.y.type, dst, n, size, p.stream, yb.v,
                [&](std::int64_t i) { return Elements::output(xhat(i), Simd::load(w + i), none); });
  }
}

inline void forward(const ForwardPlan& p, std::int64_t row_begin, std::int64_t row_end) {
  alignas(64) float cache[kCachedRow];
  Buffer b0, b1;
  const auto n_float = static_cast<float>(p.n);
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const ForwardRow row{p, row_of(p.x, r), p.residual.present ? row_of(p.residual, r) : nullptr,
                         p.s.present ? row_of(p.s, r) : nullptr, cache};
    std::byte* y = p.y.present ? row_of(p.y, r) : nullptr;
    spec::TreeSum sum;
    float mean = 0.0f;
    float rstd = 0.0f;
    if (p.layer_norm) {
      for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
        push_plain(row.first(column, n, size, b0.v, b1.v), size, sum);
      });
      const float first_mean = spec::Scalar::div(sum.finish(), n_float);
      spec::TreeSum sum_d, sum_d2;
      for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
        push_centred(row.again(column, n, size, b0.v, b1.v), first_mean, n, size, sum_d, sum_d2);
      });
      const auto statistics = spec::layer_statistics(first_mean, sum_d.finish(), sum_d2.finish(), n_float, p.eps);
      mean = statistics.mean;
      rstd = statistics.rstd;
    } else {
      for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
        push_squares(row.first(column, n, size, b0.v, b1.v), size, sum);
      });
      rstd = spec::rms_rstd(sum.finish(), n_float, p.eps);
    }
    if (p.mean != nullptr) p.mean[r] = mean;
    if (p.rstd != nullptr) p.rstd[r] = rstd;
    if (y == nullptr) continue;
    const std::byte* const next_x = r + 1 < row_end ? row_of(p.x, r + 1) : nullptr;
    const std::byte* const next_residual = p.residual.present && r + 1 < row_end ? row_of(p.residual, r + 1) : nullptr;
    for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
      prefetch_block(p.x.type, next_x, column, n);
      prefetch_block(p.residual.type, next_residual, column, n);
      const float* s = row.again(column, n, size, b0.v, b1.v);
      if (p.layer_norm) {
        forward_output<true>(p, mean, rstd, s, y, column, n, size);
      } else {
        forward_output<false>(p, mean, rstd, s, y, column, n, size);
      }
    });
  }
  if (p.stream) Simd::fence();
}
