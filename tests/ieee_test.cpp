// The caller's floating-point mode changes no bit, and is the caller's again after a call.
#include <gtest/gtest.h>

#include <cfenv>

#include "support/call.hpp"
#include "support/random_case.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace truenorm::test {
namespace {

#if defined(__x86_64__)
using Mode = unsigned;
Mode mode() { return _mm_getcsr(); }
void set_mode(Mode m) { _mm_setcsr(m); }
constexpr Mode kFlushing = 0x8040;  // flush to zero, denormals are zero
#elif defined(__aarch64__)
using Mode = std::uint64_t;
Mode mode() {
  Mode m = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(m));
  return m;
}
void set_mode(Mode m) { __asm__ volatile("msr fpcr, %0" : : "r"(m)); }
constexpr Mode kFlushing = Mode{1} << 24;
#else
#error "how does this processor flush subnormals?"
#endif

enum class Caller { flushes_subnormals, rounds_upward };

// Runs `call` in the caller's mode and returns the status; no other arithmetic is done in that mode.
template <class Call>
tn_status in_mode(Caller caller, const Call& call) {
  const Mode saved = mode();
  if (caller == Caller::flushes_subnormals) {
    set_mode(saved | kFlushing);
  } else {
    std::fesetround(FE_UPWARD);
  }
  const Mode before = mode();
  const tn_status status = call();
  const Mode after = mode();
  set_mode(saved);
  EXPECT_EQ(after, before);
  return status;
}

class Ieee : public testing::TestWithParam<Caller> {
 protected:
  Arena arena;
  Rng rng{16};
  std::vector<std::byte> scratch = std::vector<std::byte>(std::size_t{1} << 24);

  // A row is subnormals, a row is of all magnitudes, the others are near 1.
  tn_tensor filled(tn_dtype type) {
    const tn_tensor t = arena.matrix(type, 60, 900);
    fill(t, rng, Fill::normal);
    fill(row_view(t, 1), rng, Fill::subnormal);
    fill(row_view(t, 2), rng, Fill::mixed);
    return t;
  }
};

TEST_P(Ieee, ForwardAndBackward) {
  for (const tn_op op : {TN_RMS_NORM, TN_LAYER_NORM}) {
    for (const tn_dtype type : {TN_F32, TN_F16, TN_BF16}) {
      tn_forward_args f = forward_args(op);
      f.eps = 0.25f;
      f.x = filled(type);
      f.residual = filled(TN_F32);
      f.y = arena.matrix(type, 60, 900);
      f.residual_out = arena.matrix(type, 60, 900);
      f.rstd = arena.vector(TN_F32, 60);
      if (op == TN_LAYER_NORM) f.mean = arena.vector(TN_F32, 60);
      const ForwardBits expected = model_forward(f);
      write_bits(f.rstd, expected.rstd);
      if (op == TN_LAYER_NORM) write_bits(f.mean, expected.mean);

      tn_backward_args b = backward_args(op);
      b.dy = filled(type);
      b.s = f.x;
      b.mean = f.mean;
      b.rstd = f.rstd;
      b.weight = arena.vector(type, 900);
      fill(b.weight, rng, Fill::normal);
      b.dx = arena.matrix(type, 60, 900);
      b.dweight = arena.vector(type, 900);
      const BackwardBits expected_back = model_backward(b);

      for (const tn_isa isa : available_isas()) {
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(testing::Message() << tn_isa_name(isa) << ", " << threads << " threads");
          const tn_exec exec = on(isa, shared_pool(threads));
          EXPECT_EQ(in_mode(GetParam(), [&] { return tn_forward(&exec, &f, nullptr, nullptr); }), TN_OK);
          expect_bits(f, expected);
          const tn_workspace workspace{scratch.data(), scratch.size(), nullptr, 0};
          EXPECT_EQ(in_mode(GetParam(), [&] { return tn_backward(&exec, &b, &workspace, nullptr); }), TN_OK);
          expect_bits(b, expected_back);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Caller, Ieee, testing::Values(Caller::flushes_subnormals, Caller::rounds_upward),
                         [](const auto& tested) {
                           return tested.param == Caller::rounds_upward ? "RoundsUpward" : "FlushesSubnormals";
                         });

}  // namespace
}  // namespace truenorm::test
