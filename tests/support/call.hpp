// Calling the library from tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "support/arena.hpp"
#include "support/model.hpp"
#include "truenorm/truenorm.h"

namespace truenorm::test {

// Instruction sets that this build and machine have, each by name.
std::vector<tn_isa> available_isas();

class Pool {
 public:
  explicit Pool(int count);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { tn_threads_destroy(threads_); }
  tn_threads* get() const { return threads_; }

 private:
  tn_threads* threads_ = nullptr;
};

// Pools of 2 and 7 threads, made once; null for 1.
tn_threads* shared_pool(int count);

tn_exec on(tn_isa isa = TN_ISA_AUTO, tn_threads* threads = nullptr);

// Structs with their size, operation and eps 1e-6 set; everything else absent or zero.
tn_forward_args forward_args(tn_op op);
tn_backward_args backward_args(tn_op op);

// Run and expect success. The backward makes its own workspace, of exactly the size asked for, at an odd address and
// with canaries around.
void forward(const tn_forward_args& args, const tn_exec& exec = on());
void backward(const tn_backward_args& args, const tn_exec& exec = on());

// The outputs of `args`, which are spoiled first.
ForwardBits on_cpu(const tn_forward_args& args, const tn_exec& exec = on());
BackwardBits on_cpu(const tn_backward_args& args, const tn_exec& exec = on());

// Writes values that no result has, so that one of an earlier call does not pass for a later one's.
void spoil(const tn_tensor& t);
void spoil_outputs(const tn_forward_args& args);
void spoil_outputs(const tn_backward_args& args);

void expect_bits(const tn_forward_args& args, const ForwardBits& expected);
void expect_bits(const tn_backward_args& args, const BackwardBits& expected);

// Every instruction set with 1, 2 and 7 threads against the model. Only the outputs of `args` may change in `arena`.
// Not for calls in place.
void check(Arena& arena, const tn_forward_args& args);
void check(Arena& arena, const tn_backward_args& args);

// Where `check` has calls run instead, once it is set: tests of a device so take the CPU's cases over. False: there is
// no such place, and the CPU serves.
struct Elsewhere {
  bool (*forward)(Arena& arena, const tn_forward_args& args) = nullptr;
  bool (*backward)(Arena& arena, const tn_backward_args& args) = nullptr;
};
extern Elsewhere elsewhere;

}  // namespace truenorm::test
