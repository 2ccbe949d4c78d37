// The backward kernels. Included once per instruction set, inside that set's namespace, after forward.hpp.

// Where one strip adds up its weight gradients; null where not asked for.
struct StripSums {
  float* dweight = nullptr;
  float* dbias = nullptr;
};

// The operands of one row's backward, and what its first pass finds.
struct BackwardRow {
  const BackwardPlan& p;
  std::int64_t r;
  const std::byte* dy;
  const std::byte* s;
  float mean;
  float rstd;
  float minus_slope = 0.0f;
  float shift = 0.0f;

  BackwardRow(const BackwardPlan& plan, std::int64_t row)
      : p(plan),
        r(row),
        dy(row_of(plan.dy, row)),
        s(row_of(plan.s, row)),
        mean(plan.layer_norm ? plan.mean[row] : 0.0f),
        rstd(plan.rstd[row]) {}

  const float* dy_block(std::int64_t column, std::int64_t n, std::int64_t size, float* buffer) const {
    return load_block(p.dy.type, dy + column * size_of(p.dy.type), n, size, buffer);
  }
  const float* s_block(std::int64_t column, std::int64_t n, std::int64_t size, float* buffer) const {
    return load_block(p.s.type, s + column * size_of(p.s.type), n, size, buffer);
  }
};

// A block's part of the row's sums, and its terms of the weight gradients, from one reading of the block.
// Elements past the row's end add zeros: dy is +0 there. (Where the mean is not finite they may add a NaN, to sums that
// are NaN already.)
template <bool kLayer, bool kWeightGradient>
inline void backward_sums(const BackwardRow& row, const StripSums& strip, spec::TreeSum& sum_slope,
                          spec::TreeSum& sum_shift, std::int64_t column, std::int64_t n, std::int64_t size) {
  const BackwardPlan& p = row.p;
  Buffer dyb, sb, wb;
  const float* dy = row.dy_block(column, n, size, dyb.v);
  const float* s = row.s_block(column, n, size, sb.v);
  const float* w = weight_block(p.weight, p.offset, column, n, size, wb.v);
  const Simd::F mean = Simd::set(row.mean), rstd = Simd::set(row.rstd);
  const auto centred = [&](std::int64_t i) {
    if constexpr (kLayer) return Elements::centred(Simd::load(s + i), mean);
    return Simd::load(s + i);
  };
  if (kWeightGradient && p.round_xhat) {
    float* const dweight = strip.dweight + column;
    for (std::int64_t i = 0; i < size; i += Simd::kWidth) {
      const Simd::F xhat = rounded_to(p.xhat_type, Elements::normalised(centred(i), rstd));
      Simd::store(dweight + i, Elements::grad_weight_llama(Simd::load(dweight + i), Simd::load(dy + i), xhat));
    }
  }
  if (strip.dbias != nullptr) {
    float* const dbias = strip.dbias + column;
    for (std::int64_t i = 0; i < size; i += Simd::kWidth) {
      Simd::store(dbias + i, Elements::grad_bias(Simd::load(dbias + i), Simd::load(dy + i)));
    }
  }
  float* const dweight = kWeightGradient && !p.round_xhat ? strip.dweight + column : nullptr;
  const auto product = [&](std::int64_t i) {
    const Simd::F t = Elements::product(Simd::load(dy + i), centred(i));
    if (kWeightGradient && dweight != nullptr) {
      Simd::store(dweight + i, Elements::grad_weight(Simd::load(dweight + i), t, rstd));
    }
    return t;
  };
  const auto terms = [&](std::int64_t i) {
    const std::int64_t j = i + Simd::kWidth;
    const Simd::F t0 = product(i), t1 = product(j);
    const Pairs t(t0, t1), wp(Simd::load(w + i), Simd::load(w + j));
    if constexpr (kLayer) {
      return Sums<2>{{products(t, wp), products(Pairs(Simd::load(dy + i), Simd::load(dy + j)), wp)}};
    } else {
      return Sums<1>{{products(t, wp)}};
    }
  };
  if constexpr (kLayer) {
    push_block<2>(size, terms, {&sum_slope, &sum_shift});
  } else {
    push_block<1>(size, terms, {&sum_slope});
  }
}

// One block of dx and dresidual.
template <bool kLayer>
inline void backward_outputs(const BackwardRow& row, const std::byte* ds, std::byte* dx, std::byte* dresidual,
                             std::int64_t column, std::int64_t n, std::int64_t size) {
  const BackwardPlan& p = row.p;
  Buffer dyb, sb, wb, dsb, out;
  const float* dy = row.dy_block(column, n, size, dyb.v);
  const float* s = row.s_block(column, n, size, sb.v);
  const float* w = weight_block(p.weight, p.offset, column, n, size, wb.v);
  const float* addend = nullptr;
  if (ds != nullptr) addend = load_block(p.ds.type, ds + column * size_of(p.ds.type), n, size, dsb.v);

  std::byte* const dx_block = dx != nullptr ? dx + column * size_of(p.dx.type) : nullptr;
  const Simd::F mean = Simd::set(row.mean), rstd = Simd::set(row.rstd), none = Simd::set(spec::kNoAddend);
  const Simd::F minus_slope = Simd::set(row.minus_slope), shift = Simd::set(row.shift);
  const auto compute = [&](std::int64_t i, Simd::F d) {
    const Simd::F g = Simd::load(dy + i), v = Simd::load(s + i), wi = Simd::load(w + i);
    if constexpr (kLayer) {
      return Elements::grad_layer(g, wi, Elements::centred(v, mean), minus_slope, shift, rstd, d);
    } else {
      return Elements::grad_rms(g, wi, v, minus_slope, rstd, d);
    }
  };
  if (dx_block != nullptr && dresidual == nullptr) {
    if (addend != nullptr) {
      store_block(p.dx.type, dx_block, n, size, p.stream, out.v,
                  [&](std::int64_t i) { return compute(i, Simd::load(addend + i)); });
    } else {
      store_block(p.dx.type, dx_block, n, size, p.stream, out.v, [&](std::int64_t i) { return compute(i, none); });
    }
    return;
  }
  // With both outputs the results wait in the buffer: dx may lie over an input of dresidual's.
  for (std::int64_t i = 0; i < size; i += Simd::kWidth) {
    Simd::store(out.v + i, compute(i, addend != nullptr ? Simd::load(addend + i) : none));
  }
  if (dx_block != nullptr) narrow(p.dx.type, dx_block, n, out.v, p.stream);
  if (dresidual != nullptr) {
    narrow(p.dresidual.type, dresidual + column * size_of(p.dresidual.type), n, out.v, p.stream);
  }
}

template <bool kLayer>
inline void backward_row(const BackwardPlan& p, std::int64_t r, std::int64_t next, const StripSums& strip) {
  BackwardRow row(p, r);
  spec::TreeSum sum_slope, sum_shift;
  for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
    if (strip.dweight != nullptr) {
      backward_sums<kLayer, true>(row, strip, sum_slope, sum_shift, column, n, size);
    } else {
      backward_sums<kLayer, false>(row, strip, sum_slope, sum_shift, column, n, size);
    }
  });
  if (!p.dx.present && !p.dresidual.present) return;
  const auto n_float = static_cast<float>(p.n);
  row.minus_slope = spec::minus_slope_of(sum_slope.finish(), n_float, row.rstd);
  if constexpr (kLayer) row.shift = spec::shift_of(sum_shift.finish(), n_float);
  const std::byte* ds = p.ds.present ? row_of(p.ds, r) : nullptr;
  std::byte* dx = p.dx.present ? row_of(p.dx, r) : nullptr;
  std::byte* dresidual = p.dresidual.present ? row_of(p.dresidual, r) : nullptr;
  const std::byte* const next_dy = next < p.m ? row_of(p.dy, next) : nullptr;
  const std::byte* const next_s = next < p.m ? row_of(p.s, next) : nullptr;
  const std::byte* const next_ds = p.ds.present && next < p.m ? row_of(p.ds, next) : nullptr;
  for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
    prefetch_block(p.dy.type, next_dy, column, n);
    prefetch_block(p.s.type, next_s, column, n);
    prefetch_block(p.ds.type, next_ds, column, n);
    backward_outputs<kLayer>(row, ds, dx, dresidual, column, n, size);
  });
}

// Without dy the gradient is ds itself.
inline void pass_through_row(const BackwardPlan& p, std::int64_t r) {
  const std::byte* ds = row_of(p.ds, r);
  std::byte* dx = p.dx.present ? row_of(p.dx, r) : nullptr;
  std::byte* dresidual = p.dresidual.present ? row_of(p.dresidual, r) : nullptr;
  for_blocks(p.n, [&](std::int64_t column, std::int64_t n, std::int64_t size) {
    Buffer b;
    widen(p.ds.type, ds + column * size_of(p.ds.type), n, size, b.v);
    if (dx != nullptr) narrow(p.dx.type, dx + column * size_of(p.dx.type), n, b.v, p.stream);
    if (dresidual != nullptr) {
      narrow(p.dresidual.type, dresidual + column * size_of(p.dresidual.type), n, b.v, p.stream);
    }
  });
}

// `next` is the row that will follow, for prefetching; p.m or more where there is none.
inline void backward_row_any(const BackwardPlan& p, std::int64_t r, std::int64_t next, const StripSums& strip) {
  if (!p.dy.present) {
    pass_through_row(p, r);
  } else if (p.layer_norm) {
    backward_row<true>(p, r, next, strip);
  } else {
    backward_row<false>(p, r, next, strip);
  }
}

inline void backward_rows(const BackwardPlan& p, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) backward_row_any(p, r, r + 1, {});
  if (p.stream) Simd::fence();
}

// `count` rows of `columns` floats, summed into the first in the neighbour-first balanced tree. A missing neighbour
// counts as +0: combine() adds that once, at the end.
inline void fold(float* base, std::int64_t stride, std::int64_t count, std::int64_t columns) {
  for (; count > 1; count = (count + 1) / 2) {
    for (std::int64_t i = 0; 2 * i < count; ++i) {
      const float* left = base + 2 * i * stride;
      const float* right = left + stride;
      float* to = base + i * stride;
      const bool paired = 2 * i + 1 < count;
      for (std::int64_t j = 0; j < columns; j += Simd::kWidth) {
        const Simd::F v = Simd::load(left + j);
        Simd::store(to + j, paired ? Simd::add(v, Simd::load(right + j)) : v);
      }
    }
  }
}

inline void copy_columns(float* dst, const float* src, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; j += Simd::kWidth) Simd::store(dst + j, Simd::load(src + j));
}

// All rows of one group of strips, in the order in which they lie in memory; each strip still meets its own in order.
inline void backward_group(const BackwardPlan& p, std::int64_t group, int slot) {
  const std::int64_t first = group * p.group_strips;
  const std::int64_t count = p.strips - first < p.group_strips ? p.strips - first : p.group_strips;
  const std::int64_t plane = p.group_strips * p.columns;
  const int planes = (p.dweight.present ? 1 : 0) + (p.dbias.present ? 1 : 0);
  float* const sums = p.accumulators + slot * planes * plane;
  for (std::int64_t i = 0; i < planes * plane; i += Simd::kWidth) Simd::store(sums + i, Simd::set(0.0f));
  float* const dweight = p.dweight.present ? sums : nullptr;
  float* const dbias = p.dbias.present ? sums + (planes - 1) * plane : nullptr;

  const std::int64_t step = spec::strips(p.n);
  for (std::int64_t base = first; base < p.m; base += step) {
    for (std::int64_t i = 0; i < count && base + i < p.m; ++i) {
      const StripSums strip{dweight != nullptr ? dweight + i * p.columns : nullptr,
                            dbias != nullptr ? dbias + i * p.columns : nullptr};
      backward_row_any(p, base + i, i + 1 < count ? base + i + 1 : base + step, strip);
    }
  }
  for (int k = 0; k < planes; ++k) {
    fold(sums + k * plane, p.columns, count, p.columns);
    copy_columns(p.partials + (k * p.groups + group) * p.columns, sums + k * plane, p.columns);
  }
  if (p.stream) Simd::fence();
}

inline void combine(const BackwardPlan& p, std::int64_t column_begin, std::int64_t column_end) {
  const Vec* const outputs[] = {&p.dweight, &p.dbias};
  int plane = 0;
  for (const Vec* out : outputs) {
    if (!out->present) continue;
    float* sums = p.partials + plane * p.groups * p.columns;
    ++plane;
    for (std::int64_t column = column_begin; column < column_end; column += kBlock) {
      const std::int64_t n = p.n - column < kBlock ? p.n - column : std::int64_t{kBlock};
      const std::int64_t size = n == kBlock ? std::int64_t{kBlock} : padded_size(n);
      Buffer zeros{};
      float* block = zeros.v;  // no rows: zero gradients
      if (p.groups > 0) {
        block = sums + column;
        fold(block, p.columns, p.groups, size);
        for (std::int64_t i = 0; i < size; i += Simd::kWidth) {
          Simd::store(block + i, Simd::add(Simd::load(block + i), Simd::set(0.0f)));
        }
      }
      narrow(out->type, out->data + column * size_of(out->type), n, block, false);
    }
  }
}
