// What nearly every test on a device does, and sizes as parts of tests' names.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "cuda/device.hpp"
#include "support/call.hpp"
#include "support/random_case.hpp"

namespace truenorm::test {

// Runs a call whose outputs the arena allows: its bits are those expected, and nothing else is written to.
template <class Args, class Expected>
void check_call(Arena& arena, const Args& args, const Expected& expected) {
  arena.arm();
  ASSERT_NO_THROW(run_on_device(arena, args));  // with the trace: which call it was
  EXPECT_TRUE(arena.intact()) << "in_place " << args.in_place;
  expect_bits(args, expected);
}

// Those that are there.
inline void fill_all(std::initializer_list<tn_tensor> tensors, Rng& rng) {
  for (const tn_tensor& t : tensors) {
    if (!absent(t)) fill(t, rng, Fill::normal);
  }
}

// Runs a call whose outputs these are, those that are there: its bits are the CPU's.
template <class Args>
void check_outputs(Arena& arena, const Args& args, std::initializer_list<tn_tensor> outputs) {
  const auto expected = on_cpu(args);
  for (const tn_tensor& t : outputs) {
    if (!absent(t)) arena.allow(t);
  }
  spoil_outputs(args);
  check_call(arena, args, expected);
}

inline std::string name_of(Size size) { return std::to_string(size.m) + "x" + std::to_string(size.n); }
inline std::string name_of_size(const testing::TestParamInfo<Size>& of) { return name_of(of.param); }

}  // namespace truenorm::test
