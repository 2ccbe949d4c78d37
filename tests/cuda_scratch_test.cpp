// Scratch of the CUDA backend: what the interface asks for is enough wherever a call's operands lie, and whatever is
// written over what.
#include <gtest/gtest.h>

#include <cstdint>

#include "cuda/launch/plan.hpp"

namespace truenorm::cuda {
namespace {

using spec::Rows;
using spec::Type;

constexpr Device kDevices[] = {{132, 9, 0, 232448}, {108, 8, 0, 166912}, {170, 12, 0, 101376}};

// Addresses that nothing is read from, `off` bytes past a multiple of 4096.
struct Places {
  std::uintptr_t off, next = 0;
  std::byte* take() { return reinterpret_cast<std::byte*>((next += 4096) + off); }
};

Rows matrix(Places& places, Type type, std::int64_t m, std::int64_t n) {
  return {places.take(), type, true, m, n * spec::size_of(type), 0};
}

spec::BackwardCall make_call(std::int64_t m, std::int64_t n, Type type, int options, std::uintptr_t off) {
  Places places{off};
  spec::BackwardCall call;
  call.m = m;
  call.n = n;
  call.layer_norm = (options & 1) != 0;
  const bool dy = (options & 16) == 0;
  if (dy) call.dy = matrix(places, type, m, n);
  call.s = matrix(places, type, m, n);
  if (!dy || (options & 2) != 0) call.ds = matrix(places, type, m, n);
  call.dx = dy && (options & 4) != 0 ? call.dy : (options & 8) != 0 ? call.s : matrix(places, type, m, n);
  call.weight = {places.take(), type, true};
  call.dweight = {places.take(), type, true};
  if (call.layer_norm) call.dbias = {places.take(), type, true};
  return call;
}

TEST(CudaScratch, IsEnoughWhereverOperandsLie) {
  for (const Device& device : kDevices) {
    for (const std::int64_t m : {1, 100, 300, 5000, 40000}) {
      for (std::int64_t n = 1; n < 26000; n += n < 2100 ? 7 : 1001) {
        for (const std::int64_t width : {n, n / 8 * 8 + 8}) {
          for (int options = 0; options < 32; ++options) {
            for (const Type type : {Type::bf16, Type::f32}) {
              spec::BackwardCall asked = make_call(m, width, type, options & 19, 0);
              for (Rows* t : {&asked.dy, &asked.s, &asked.ds, &asked.dx}) t->data = nullptr;
              asked.weight.data = nullptr;
              const Scratch most = most_scratch(asked, device);
              for (const std::uintptr_t off : {std::uintptr_t{0}, std::uintptr_t{4}}) {
                const BackwardPlan plan = plan_of(make_call(m, width, type, options, off), device);
                const Scratch& needed = plan.scratch;
                ASSERT_TRUE(!plan.ordered || needed.counters > 0);
                ASSERT_LE(needed.data, most.data)
                    << m << " x " << width << ", options " << options << ", off by " << off;
                ASSERT_LE(needed.counters, most.counters) << m << " x " << width << ", options " << options;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace truenorm::cuda
