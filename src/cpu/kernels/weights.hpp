// Weights and biases as the kernels read them. Included once per instruction set, inside that set's namespace.

// One of them in FP32, an offset added, in the order in which the kernel of kType holds its elements (blocks.hpp). It
// is made once for all of a task's rows where it is not too long, else block by block for each row.
template <Type kType>
class Weights {
 public:
  // `missing` stands for one that is not there.
  Weights(const Vec& weight, float offset, float missing, std::int64_t n)
      : weight_(weight), offset_(offset), missing_(missing), ready_(n <= kMost) {
    if (!ready_) return;
    for_blocks(n, [&](const Block& at) {
      at.whole() ? make<kType>(at, row_ + at.column) : make<Type::f32>(at, row_ + at.column);
    });
  }

  template <Type kBlockType>
  const float* block(const Block& at, Buffer& buffer) const {
    if (ready_) return row_ + at.column;
    make<kBlockType>(at, buffer.v);
    return buffer.v;
  }

 private:
  static constexpr std::int64_t kMost = 8192;

  template <Type kBlockType>
  void make(const Block& at, float* out) const {
    const Simd::F offset = Simd::set(offset_), missing = Simd::set(missing_);
    if (!weight_.present) {
      for (std::int64_t i = 0; i < at.size; i += Simd::kWidth) Simd::store<false>(out + i, missing);
      return;
    }
    widen(weight_.type, weight_.data + at.column * size_of(weight_.type), at.n, at.size, out);
    for (std::int64_t i = 0; i < at.size; i += kTwo) {
      Two w = load_two(out + i);
      if constexpr (splits(kBlockType)) w = even_odd<false>(w);
      store_two(out + i, {Elements::effective_weight(w.a, offset), Elements::effective_weight(w.b, offset)});
    }
    for (std::int64_t i = at.n; i < at.size; ++i) out[i] = 0.0f;
  }

  const Vec& weight_;
  float offset_;
  float missing_;
  bool ready_;
  alignas(64) float row_[kMost + kBlock];
};
