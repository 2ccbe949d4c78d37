// The backward kernels. Included once per instruction set, inside that set's namespace, after forward.hpp.

// Where one strip adds up its weight gradients; null where not asked for. In whole blocks of BF16 matrices each kTwo
// columns lie as their even ones and then their odd ones.
struct StripSums {
  float* dweight = nullptr;
  float* dbias = nullptr;
  bool fresh = false;  // nothing has been added yet, and what lies there means nothing

  StripSums at(std::int64_t column) const {
    return {dweight != nullptr ? dweight + column : nullptr, dbias != nullptr ? dbias + column : nullptr, fresh};
  }
  // The sums so far.
  [[gnu::always_inline]] Two load(const float* p) const {
    return fresh ? Two{Simd::set(0.0f), Simd::set(0.0f)} : load_two(p);
  }
};

// A block's terms of the row's sums, slope and (LayerNorm) shift, and of the weight gradients.
template <Type kType, bool kLayer>
[[gnu::always_inline]] inline auto block_sums(const std::byte* dy, const std::byte* s, const float* weight,
                                              float row_mean, float row_rstd, const StripSums strip,
                                              std::int64_t size) {
  const Simd::F mean = Simd::set(row_mean), rstd = Simd::set(row_rstd);
  return block_tree(
      size, [=](std::int64_t i) __attribute__((always_inline)) {
        const Two g = load<kType>(dy, i);
        Two v = load<kType>(s, i);
        if constexpr (kLayer) v = {Elements::centred(v.a, mean), Elements::centred(v.b, mean)};
        const Two t{Elements::product(g.a, v.a), Elements::product(g.b, v.b)};
        if (strip.dweight != nullptr) {
          const Two sum = strip.load(strip.dweight + i);
          store_two(strip.dweight + i,
                    {Elements::grad_weight(sum.a, t.a, rstd), Elements::grad_weight(sum.b, t.b, rstd)});
        }
        if (strip.dbias != nullptr) {
          const Two sum = strip.load(strip.dbias + i);
          store_two(strip.dbias + i, {Elements::grad_bias(sum.a, g.a), Elements::grad_bias(sum.b, g.b)});
        }
        const Two w = even_odd<splits(kType)>(load_two(weight + i));
        const Simd::F slope = pairs_of_products(even_odd<splits(kType)>(t), w);
        if constexpr (kLayer) {
          return Sums{slope, pairs_of_products(even_odd<splits(kType)>(g), w)};
        } else {
          return slope;
        }
      });
}

// The weight gradient's terms under llama rounding.
template <Type kType>
inline void block_llama(Type xhat_type, const std::byte* dy, const std::byte* s, float row_rstd, const StripSums& strip,
                        std::int64_t size) {
  const Simd::F rstd = Simd::set(row_rstd);
  const auto xhat = [&](Simd::F v) { return rounded_to(xhat_type, Elements::normalised(v, rstd)); };
  for (std::int64_t i = 0; i < size; i += kTwo) {
    const Two g = load<kType>(dy, i), v = load<kType>(s, i), sum = strip.load(strip.dweight + i);
    store_two(strip.dweight + i,
              {Elements::grad_weight_llama(sum.a, g.a, xhat(v.a)), Elements::grad_weight_llama(sum.b, g.b, xhat(v.b))});
  }
}

// What one row's outputs are made with.
struct Slopes {
  float mean, rstd, minus_slope, shift;
};

// One block of the gradient, to one or two places; `ds` and `second` may be null.
template <Type kType, bool kLayer, bool kStream>
[[gnu::always_inline]] inline void block_gradient(const Slopes& of, const std::byte* dy, const std::byte* s,
                                                  const float* weight, const std::byte* ds, std::byte* dx,
                                                  std::byte* second, std::int64_t size) {
  const Simd::F mean = Simd::set(of.mean), rstd = Simd::set(of.rstd), none = Simd::set(spec::kNoAddend);
  const Simd::F minus_slope = Simd::set(of.minus_slope), shift = Simd::set(of.shift);
  const auto gradient = [&](Simd::F g, Simd::F w, Simd::F v, Simd::F addend) __attribute__((always_inline)) {
    if constexpr (kLayer) {
      return Elements::grad_layer(g, w, Elements::centred(v, mean), minus_slope, shift, rstd, addend);
    } else {
      return Elements::grad_rms(g, w, v, minus_slope, rstd, addend);
    }
  };
  const auto run = [&](auto has_ds) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < size; i += kTwo) {
      const Two g = load<kType>(dy, i), v = load<kType>(s, i), w = load_two(weight + i);
      Two d{none, none};
      if constexpr (has_ds) d = load<kType>(ds, i);
      const Two out{gradient(g.a, w.a, v.a, d.a), gradient(g.b, w.b, v.b, d.b)};
      store<kType, kStream>(dx, i, out);
      if (second != nullptr) store<kType, kStream>(second, i, out);
    }
  };
  ds != nullptr ? run(std::true_type{}) : run(std::false_type{});
}

// The same out of line, for the blocks of which a row has at most one.
template <Type kType, bool kLayer>
[[gnu::noinline]] auto block_sums_apart(const std::byte* dy, const std::byte* s, const float* weight, float mean,
                                        float rstd, const StripSums& strip, std::int64_t size) {
  return block_sums<kType, kLayer>(dy, s, weight, mean, rstd, strip, size);
}
template <Type kType, bool kLayer>
[[gnu::noinline]] void block_gradient_apart(const Slopes& of, const std::byte* dy, const std::byte* s,
                                            const float* weight, const std::byte* ds, std::byte* dx, std::byte* second,
                                            std::int64_t size) {
  block_gradient<kType, kLayer, false>(of, dy, s, weight, ds, dx, second, size);
}

// A row and what is found out about it.
struct BackwardRow {
  const std::byte *dy, *s, *ds;
  std::byte *dx, *dresidual;
  const std::byte *next_dy, *next_s, *next_ds;
  Slopes of;
  RowSum slope, shift;
};

// Rows that go through each pass together: the weight is read once for all, and, where they are rows of one strip, so
// are the strip's sums.
constexpr std::int64_t kBackwardRows = 4;
constexpr std::int64_t kBackwardBytes = 128 << 10;  // that dy and s of a batch take of the second-level cache

template <Type kType, bool kLayer>
class Backward {
 public:
  explicit Backward(const BackwardPlan& plan)
      : p(plan), weight(plan.weight, spec::effective_offset(plan.offset), spec::kNoWeight, plan.n) {}

  // Rows in a batch.
  std::int64_t batch() const {
    const std::int64_t fit = kBackwardBytes / (2 * p.n * size_of(kType));
    return fit < 1 ? 1 : fit > kBackwardRows ? kBackwardRows : fit;
  }

  // Rows first, first + step, ...; those that come after them start at `next`.
  void run(std::int64_t first, std::int64_t step, std::int64_t count, const StripSums& strip, std::int64_t next) {
    for (std::int64_t k = 0; k < count; ++k) start(rows[k], first + k * step, next + k * step);
    for_blocks(
        p.n, [&](const Block& at) __attribute__((always_inline)) { sums<kType>(count, strip, at); },
        [&](const Block& at) { sums_rest(count, strip, at); });
    if (!p.dx.present && !p.dresidual.present) return;
    const auto n_float = static_cast<float>(p.n);
    for (std::int64_t k = 0; k < count; ++k) {
      Slopes& of = rows[k].of;
      of.minus_slope = spec::minus_slope_of(rows[k].slope.finish(), n_float, of.rstd);
      if constexpr (kLayer) of.shift = spec::shift_of(rows[k].shift.finish(), n_float);
    }
    for (std::int64_t k = 0; k < count; ++k) streams(rows[k]) ? outputs<true>(rows[k]) : outputs<false>(rows[k]);
  }

 private:
  void start(BackwardRow& row, std::int64_t r, std::int64_t next) const {
    const auto row_if = [&](const Rows& t, std::int64_t i) { return t.present && i < p.m ? row_of(t, i) : nullptr; };
    row.dy = row_of(p.dy, r);
    row.s = row_of(p.s, r);
    row.ds = row_if(p.ds, r);
    row.dx = row_if(p.dx, r);
    row.dresidual = row_if(p.dresidual, r);
    row.next_dy = row_if(p.dy, next);
    row.next_s = row_if(p.s, next);
    row.next_ds = row_if(p.ds, next);
    row.of = {kLayer ? p.mean[r] : 0.0f, p.rstd[r], 0.0f, 0.0f};
    row.slope.clear();
    row.shift.clear();
  }

  [[gnu::noinline]] void sums_rest(std::int64_t count, const StripSums& strip, const Block& at) {
    at.whole() ? sums<kType, true>(count, strip, at) : sums<Type::f32, true>(count, strip, at);
  }

  template <Type kBlockType, bool kApart = false>
  [[gnu::always_inline]] void sums(std::int64_t count, const StripSums& strip, const Block& at) {
    Buffer wb;
    const float* w = weight.template block<kBlockType>(at, wb);
    for (std::int64_t k = 0; k < count; ++k) {
      StripSums here = strip.at(at.column);
      here.fresh = strip.fresh && k == 0;
      row_sums<kBlockType, kApart>(rows[k], w, here, at);
      prefetch_next(rows[k], at, {0, 8});
    }
  }

  template <Type kBlockType, bool kApart>
  [[gnu::always_inline]] void row_sums(BackwardRow& row, const float* w, StripSums strip, const Block& at) const {
    Buffer dyb, sb;
    const std::byte* dy = read_block<kBlockType>(p.dy.type, row.dy, at, dyb);
    const std::byte* s = read_block<kBlockType>(p.s.type, row.s, at, sb);
    if (strip.dweight != nullptr && p.round_xhat) {
      block_llama<kBlockType>(p.xhat_type, dy, s, row.of.rstd, strip, at.size);
      strip.dweight = nullptr;
    }
    float mean = row.of.mean;
    if (kLayer && !at.whole()) {
      s = centre(sb, at, mean);
      mean = 0.0f;
    }
    const auto of = kApart ? block_sums_apart<kBlockType, kLayer>(dy, s, w, mean, row.of.rstd, strip, at.size)
                           : block_sums<kBlockType, kLayer>(dy, s, w, mean, row.of.rstd, strip, at.size);
    if constexpr (kLayer) {
      row.slope.push(of.a);
      row.shift.push(of.b);
    } else {
      row.slope.push(of);
    }
  }

  bool streams(const BackwardRow& row) const {
    const bool by_buffer = kType == Type::f32 && row.dx != nullptr && row.dresidual != nullptr;  // see output
    return p.stream && !by_buffer && can_stream<kType>(p.dx, row.dx) && can_stream<kType>(p.dresidual, row.dresidual);
  }

  template <bool kStream>
  void outputs(const BackwardRow& row) const {
    for_blocks(
        p.n,
        [&](const Block& at) __attribute__((always_inline)) {
          output<kType, kStream>(row, at);
          prefetch_next(row, at, {8, 16});
        },
        [&](const Block& at) { output_rest(row, at); });
  }
  [[gnu::noinline]] void output_rest(const BackwardRow& row, const Block& at) const {
    at.whole() ? output<kType, false, true>(row, at) : output<Type::f32, false, true>(row, at);
    prefetch_next(row, at, {8, 16});
  }
  [[gnu::always_inline]] void prefetch_next(const BackwardRow& row, const Block& at, Share share) const {
    prefetch(row.next_dy, p.dy.type, p.n, at, share);
    prefetch(row.next_s, p.s.type, p.n, at, share);
    prefetch(row.next_ds, p.ds.type, p.n, at, share);
  }

  template <Type kBlockType, bool kStream, bool kApart = false>
  [[gnu::always_inline]] void output(const BackwardRow& row, const Block& at) const {
    Buffer dyb, sb, wb, dsb, out;
    const std::byte* dy = read_block<kBlockType>(p.dy.type, row.dy, at, dyb);
    const std::byte* s = read_block<kBlockType>(p.s.type, row.s, at, sb);
    const float* w = weight.template block<kBlockType>(at, wb);
    const std::byte* ds = row.ds != nullptr ? read_block<kBlockType>(p.ds.type, row.ds, at, dsb) : nullptr;
    // In FP32 two outputs of their own types are rounded from one buffer, which also keeps either from being written
    // before an input that it lies over has been read.
    const Rows& one = row.dx != nullptr ? p.dx : p.dresidual;
    std::byte* const first = row.dx != nullptr ? row.dx : row.dresidual;
    std::byte* const second = row.dx != nullptr ? row.dresidual : nullptr;
    std::byte* to = write_block<kBlockType>(one.type, first, at, out);
    std::byte* also = nullptr;
    if (second != nullptr) {
      if constexpr (kBlockType == Type::f32) {
        to = bytes_of(out);
      } else {
        also = write_block<kBlockType>(p.dresidual.type, second, at, out);
      }
    }
    if constexpr (kApart) {
      block_gradient_apart<kBlockType, kLayer>(row.of, dy, s, w, ds, to, also, at.size);
    } else {
      block_gradient<kBlockType, kLayer, kStream>(row.of, dy, s, w, ds, to, also, at.size);
    }
    finish_block(one.type, first, at, to, out);
    if (second != nullptr && also == nullptr) finish_block(p.dresidual.type, second, at, to, out);
  }

  const BackwardPlan& p;
  Weights<kType> weight;
  BackwardRow rows[kBackwardRows];
};

// Without dy the gradient is ds itself.
inline void pass_through_row(const BackwardPlan& p, std::int64_t r) {
  const std::byte* ds = row_of(p.ds, r);
  std::byte* dx = p.dx.present ? row_of(p.dx, r) : nullptr;
  std::byte* dresidual = p.dresidual.present ? row_of(p.dresidual, r) : nullptr;
  for_blocks(p.n, [&](const Block& at) {
    Buffer b;
    widen(p.ds.type, ds + at.column * size_of(p.ds.type), at.n, at.size, b.v);
    if (dx != nullptr) narrow(p.dx.type, dx + at.column * size_of(p.dx.type), at.n, b.v);
    if (dresidual != nullptr) narrow(p.dresidual.type, dresidual + at.column * size_of(p.dresidual.type), at.n, b.v);
  });
}

inline Type matrix_type(const BackwardPlan& p) {
  return common(common(common(common(p.s.type, p.dy), p.ds), p.dx), p.dresidual);
}

// fn(kernel) for the call's types.
template <class Fn>
[[gnu::always_inline]] inline void with_kernel(const BackwardPlan& p, const Fn& fn) {
  with_type(matrix_type(p), [&](auto type) {
    if (p.layer_norm) {
      Backward<decltype(type)::value, true> kernel(p);
      fn(kernel);
    } else {
      Backward<decltype(type)::value, false> kernel(p);
      fn(kernel);
    }
  });
}

inline void backward_rows(const BackwardPlan& p, std::int64_t row_begin, std::int64_t row_end) {
  if (!p.dy.present) {
    for (std::int64_t r = row_begin; r < row_end; ++r) pass_through_row(p, r);
    return;
  }
  with_kernel(p, [&](auto& kernel) {
    const std::int64_t batch = kernel.batch();
    for (std::int64_t r = row_begin; r < row_end; r += batch) {
      kernel.run(r, 1, row_end - r < batch ? row_end - r : batch, {}, r + batch);
    }
  });
  if (p.stream) Simd::fence();
}

// `count` rows of `columns` floats, summed into the first in the neighbour-first balanced tree. A missing neighbour
// counts as +0: combine() adds that once, at the end.
inline void fold(float* base, std::int64_t stride, std::int64_t count, std::int64_t columns) {
  const auto row = [=](std::int64_t i) { return base + i * stride; };
  for (; count >= 4 && count % 4 == 0; count /= 4) {  // two levels at once
    for (std::int64_t i = 0; 4 * i < count; ++i) {
      const float *a = row(4 * i), *b = row(4 * i + 1), *c = row(4 * i + 2), *d = row(4 * i + 3);
      for (std::int64_t j = 0; j < columns; j += Simd::kWidth) {
        const Simd::F left = Simd::add(Simd::load(a + j), Simd::load(b + j));
        Simd::store<false>(row(i) + j, Simd::add(left, Simd::add(Simd::load(c + j), Simd::load(d + j))));
      }
    }
  }
  for (; count > 1; count = (count + 1) / 2) {
    for (std::int64_t i = 0; 2 * i < count; ++i) {
      const bool paired = 2 * i + 1 < count;
      for (std::int64_t j = 0; j < columns; j += Simd::kWidth) {
        const Simd::F v = Simd::load(row(2 * i) + j);
        Simd::store<false>(row(i) + j, paired ? Simd::add(v, Simd::load(row(2 * i + 1) + j)) : v);
      }
    }
  }
}

// All rows of one group of strips, strip by strip in batches, about in the order in which they lie in memory; each
// strip still meets its own in order.
inline void backward_group(const BackwardPlan& p, std::int64_t group, int slot) {
  const std::int64_t first = group * p.group_strips;
  const std::int64_t count = p.strips - first < p.group_strips ? p.strips - first : p.group_strips;
  const std::int64_t plane = p.group_strips * p.columns;
  const int planes = (p.dweight.present ? 1 : 0) + (p.dbias.present ? 1 : 0);
  float* const sums = p.accumulators + slot * planes * plane;
  float* const dweight = p.dweight.present ? sums : nullptr;
  float* const dbias = p.dbias.present ? sums + (planes - 1) * plane : nullptr;

  const std::int64_t step = spec::strips(p.n);
  if (!p.dy.present) {
    for (std::int64_t i = 0; i < planes * plane; i += Simd::kWidth) Simd::store<false>(sums + i, Simd::set(0.0f));
    for (std::int64_t base = first; base < p.m; base += step) {
      for (std::int64_t r = base; r < base + count && r < p.m; ++r) pass_through_row(p, r);
    }
  } else {
    with_kernel(p, [&](auto& kernel) {
      const std::int64_t batch = kernel.batch();
      for (std::int64_t base = first; base < p.m; base += batch * step) {
        for (std::int64_t i = 0; i < count && base + i < p.m; ++i) {
          const std::int64_t r = base + i;
          const std::int64_t left = (p.m - r + step - 1) / step;
          const StripSums strip{dweight != nullptr ? dweight + i * p.columns : nullptr,
                                dbias != nullptr ? dbias + i * p.columns : nullptr, base == first};
          const std::int64_t next = i + 1 < count ? r + 1 : base + batch * step;
          kernel.run(r, step, left < batch ? left : batch, strip, next);
        }
      }
    });
  }
  for (int k = 0; k < planes; ++k) {
    fold(sums + k * plane, p.columns, count, p.columns);
    copy_bytes(reinterpret_cast<std::byte*>(p.partials + (k * p.groups + group) * p.columns),
               reinterpret_cast<const std::byte*>(sums + k * plane), p.columns * size_of(Type::f32), false);
  }
  if (p.stream) Simd::fence();
}

inline void combine(const BackwardPlan& p, std::int64_t column_begin, std::int64_t column_end) {
  const bool split = p.dy.present && splits(matrix_type(p));
  const Vec* const outputs[] = {&p.dweight, &p.dbias};
  int plane = 0;
  for (const Vec* out : outputs) {
    if (!out->present) continue;
    float* sums = p.partials + plane * p.groups * p.columns;
    ++plane;
    for (std::int64_t column = column_begin; column < column_end; column += kBlock) {
      const std::int64_t n = p.n - column < kBlock ? p.n - column : std::int64_t{kBlock};
      const std::int64_t size = n == kBlock ? std::int64_t{kBlock} : padded_size(n);
      Buffer block{};  // no rows: zero gradients
      if (p.groups > 0) {
        fold(sums + column, p.columns, p.groups, size);
        for (std::int64_t i = 0; i < size; i += kTwo) {
          const Simd::F zero = Simd::set(0.0f);
          Two v = load_two(sums + column + i);
          v = {Simd::add(v.a, zero), Simd::add(v.b, zero)};
          if (split && n == size) v = {Simd::first_half(v.a, v.b), Simd::second_half(v.a, v.b)};
          store_two(block.v + i, v);
        }
      }
      narrow(out->type, out->data + column * size_of(out->type), n, block.v);
    }
  }
}
