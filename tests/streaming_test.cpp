// Where the kernels store past the caches: into outputs, and never into a buffer of their own, which they read again at
// once (that made calls of mixed types six times slower, and no bit shows it). The kernels are compiled here for a
// vocabulary that notes such stores.
#include <gtest/gtest.h>

#include <vector>

#include "cpu/plan.hpp"
#include "spec/norm.hpp"
#include "spec/order.hpp"
#include "spec/reduce.hpp"

namespace truenorm::cpu::probe {
namespace {

struct Note {
  std::uintptr_t at, size;
};
std::vector<Note> notes;

struct Simd : spec::Scalar {
  static constexpr int kWidth = 1;
  static constexpr std::uintptr_t kStreamAlignment = 1;
  template <bool kStream, class T>
  static void put(T* p, T v) {
    if (kStream) notes.push_back({reinterpret_cast<std::uintptr_t>(p), sizeof(T)});
    *p = v;
  }
  static F load(const float* p) { return *p; }
  template <bool kStream>
  static void store(float* p, F v) {
    put<kStream>(p, v);
  }
  static void fence() {}
  static F set(float v) { return v; }
  static F evens(F a, F) { return a; }
  static F odds(F, F b) { return b; }
  static F first_half(F even, F) { return even; }
  static F second_half(F, F odd) { return odd; }
  static float tree(F v) { return v; }
  static F load_f16(const std::uint16_t* p) { return spec::widen_f16(*p); }
  static F load_bf16(const std::uint16_t* p) { return spec::widen_bf16(*p); }
  static F load_bf16_even(const std::uint16_t* p) { return spec::widen_bf16(p[0]); }
  static F load_bf16_odd(const std::uint16_t* p) { return spec::widen_bf16(p[1]); }
  template <bool kStream>
  static void store_f16(std::uint16_t* p, F v) {
    put<kStream>(p, spec::narrow_f16(v));
  }
  template <bool kStream>
  static void store_bf16_split(std::uint16_t* p, F even, F odd) {
    put<kStream>(p, spec::narrow_bf16(even));
    put<kStream>(p + 1, spec::narrow_bf16(odd));
  }
  static void store_bf16(std::uint16_t* p, F v) { *p = spec::narrow_bf16(v); }
  static F round_f16(F v) { return spec::widen_f16(spec::narrow_f16(v)); }
  static F round_bf16(F v) { return spec::widen_bf16(spec::narrow_bf16(v)); }
};

#include "cpu/targets/body.inc"

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kColumns = 2 * 256 + 40;  // whole blocks and a rest
constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16};

class Matrix {
 public:
  explicit Matrix(Type type) : bytes_(static_cast<std::size_t>(kRows * kColumns * size_of(type))), type_(type) {}
  Rows rows() { return {bytes_.data(), type_, true, kRows, kColumns * size_of(type_), 0}; }
  bool holds(const Note& note) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return note.at >= begin && note.at + note.size <= begin + bytes_.size();
  }

 private:
  std::vector<std::byte> bytes_;
  Type type_;
};

void expect_within(std::initializer_list<const Matrix*> outputs) {
  for (const Note& note : notes) {
    bool within = false;
    for (const Matrix* output : outputs) within = within || output->holds(note);
    ASSERT_TRUE(within) << "a store past the caches into something that is no output";
  }
}

TEST(Streaming, ForwardStreamsIntoOutputsOnly) {
  for (const bool layer_norm : {false, true}) {
    for (const Type x_type : kTypes) {
      for (const Type s_type : kTypes) {
        for (const Type y_type : kTypes) {
          Matrix x(x_type), residual(s_type), s(s_type), y(y_type);
          ForwardPlan plan{};
          plan.m = kRows;
          plan.n = kColumns;
          plan.layer_norm = layer_norm;
          plan.eps = 1;
          plan.s_type = s_type;
          plan.stream = true;
          plan.x = x.rows();
          plan.residual = residual.rows();
          plan.s = s.rows();
          plan.y = y.rows();
          notes.clear();
          kKernels.forward(plan, 0, kRows);
          expect_within({&s, &y});
          plan.residual = plan.s = {};
          plan.s_type = x_type;
          notes.clear();
          kKernels.forward(plan, 0, kRows);
          expect_within({&y});
          EXPECT_EQ(notes.empty(), x_type != y_type && y_type != Type::f32);
        }
      }
    }
  }
}

TEST(Streaming, BackwardStreamsIntoOutputsOnly) {
  const std::vector<float> statistics(kRows, 1.0f);
  for (const bool layer_norm : {false, true}) {
    for (const Type in : kTypes) {
      for (const Type dx_type : kTypes) {
        for (const Type dresidual_type : kTypes) {
          for (const int outputs : {1, 2, 3}) {
            Matrix dy(in), s(in), dx(dx_type), dresidual(dresidual_type);
            BackwardPlan plan{};
            plan.m = kRows;
            plan.n = kColumns;
            plan.layer_norm = layer_norm;
            plan.mean = plan.rstd = statistics.data();
            plan.stream = true;
            plan.dy = dy.rows();
            plan.s = s.rows();
            if (outputs & 1) plan.dx = dx.rows();
            if (outputs & 2) plan.dresidual = dresidual.rows();
            notes.clear();
            kKernels.backward_rows(plan, 0, kRows);
            expect_within({&dx, &dresidual});
            if (in == dx_type && in == dresidual_type) {
              EXPECT_EQ(notes.empty(), in == Type::f32 && outputs == 3);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace truenorm::cpu::probe
