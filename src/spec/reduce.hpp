// The sums of a row, in the published order (order.hpp).
#pragma once

#include "spec/arithmetic.hpp"
#include "spec/order.hpp"

namespace truenorm::spec {

// Two neighbouring terms of sum(a * b). A plain sum of `a` is the same with b = 1, where fma(a1, 1, a0 * 1) = a1 + a0.
template <class O>
TN_FN typename O::F pair_of_products(typename O::F a0, typename O::F b0, typename O::F a1, typename O::F b1) {
  return O::fma(a1, b1, O::mul(a0, b0));
}

// The neighbour-first balanced tree over kPairs values, in place.
TN_FN float sum_of_pairs(float (&p)[kPairs]) {
  for (int width = kPairs / 2; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) p[i] = Scalar::add(p[2 * i], p[2 * i + 1]);
  }
  return p[0];
}

// sum(a * b) over one block. Elements past the row's end are +0 in both operands.
TN_FN float block_sum_of_products(const float* a, const float* b) {
  float p[kPairs] = {};
  for (int i = 0; i < kPairs; ++i) p[i] = pair_of_products<Scalar>(a[2 * i], b[2 * i], a[2 * i + 1], b[2 * i + 1]);
  return sum_of_pairs(p);
}

// The neighbour-first balanced tree over a stream of values, missing ones (up to a power of two) counting as +0.
// Like a binary counter: level l holds the sum of a complete group of 2^l values while bit l of the count is set.
class TreeSum {
 public:
  TN_FN void push(float v) {
    int level = 0;
    for (; (count_ >> level) & 1u; ++level) v = Scalar::add(partial_[level], v);
    partial_[level] = v;
    ++count_;
  }

  // The sum, +0 where it is zero. Adding a missing +0 anywhere in the tree could only turn a -0 into +0, so with this
  // last addition it makes no difference where, or how often, that is done.
  TN_FN float finish() const {
    float sum = 0.0f;
    bool first = true;
    for (int level = 0; (count_ >> level) != 0; ++level) {
      if (((count_ >> level) & 1u) == 0) continue;
      sum = first ? partial_[level] : Scalar::add(partial_[level], sum);
      first = false;
    }
    return Scalar::add(sum, 0.0f);
  }

 private:
  std::uint64_t count_ = 0;
  float partial_[64] = {};
};

}  // namespace truenorm::spec
