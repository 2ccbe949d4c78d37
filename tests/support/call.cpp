#include "support/call.hpp"

#include <stdexcept>
#include <type_traits>

namespace truenorm::test {

std::vector<tn_isa> available_isas() {
  std::vector<tn_isa> isas;
  for (const tn_isa isa : {TN_ISA_SCALAR, TN_ISA_AVX2, TN_ISA_AVX512, TN_ISA_NEON}) {
    if (tn_isa_available(isa) != 0) isas.push_back(isa);
  }
  return isas;
}

Pool::Pool(int count) {
  tn_error error;
  if (tn_threads_create(count, &threads_, &error) != TN_OK) throw std::runtime_error(error.message);
}

tn_threads* shared_pool(int count) {
  static const Pool two(2), seven(7);
  return count == 2 ? two.get() : count == 7 ? seven.get() : nullptr;
}

tn_exec on(tn_isa isa, tn_threads* threads) {
  tn_exec exec{};
  exec.struct_size = sizeof exec;
  exec.isa = isa;
  exec.threads = threads;
  return exec;
}

tn_forward_args forward_args(tn_op op) {
  tn_forward_args args{};
  args.struct_size = sizeof args;
  args.op = op;
  args.eps = 1e-6f;
  return args;
}

tn_backward_args backward_args(tn_op op) {
  tn_backward_args args{};
  args.struct_size = sizeof args;
  args.op = op;
  return args;
}

void forward(const tn_forward_args& args, const tn_exec& exec) {
  tn_error error;
  EXPECT_EQ(tn_forward(&exec, &args, nullptr, &error), TN_OK) << error.message;
}

void backward(const tn_backward_args& args, const tn_exec& exec) {
  tn_error error;
  tn_workspace workspace{};
  ASSERT_EQ(tn_backward_workspace(&exec, &args, &workspace, &error), TN_OK) << error.message;
  EXPECT_EQ(workspace.counters_size, 0u);
  Arena arena;
  if (workspace.size > 0) {
    std::byte* data = arena.bytes(workspace.size, 3);
    arena.allow(data, workspace.size);
    workspace.data = data;
  }
  arena.arm();
  EXPECT_EQ(tn_backward(&exec, &args, &workspace, &error), TN_OK) << error.message;
  EXPECT_TRUE(arena.intact()) << "(workspace)";
}

namespace {

void expect_tensor(const char* name, const tn_tensor& got, const Bits& expected) {
  if (absent(got)) return;
  EXPECT_TRUE(equal_bits(got, expected)) << name;
}

template <class Args>
std::vector<tn_tensor> outputs_of(const Args& a) {
  if constexpr (std::is_same_v<Args, tn_forward_args>) {
    return {a.y, a.residual_out, a.mean, a.rstd};
  } else {
    return {a.dx, a.dresidual, a.dweight, a.dbias};
  }
}

void spoil_all(const std::vector<tn_tensor>& outputs) {
  for (const tn_tensor& t : outputs) {
    if (!absent(t)) spoil(t);
  }
}

template <class Args, class Expected, class Run, class Instead>
void check_all(Arena& arena, const Args& args, const Expected& expected, const Run& run, const Instead& instead) {
  for (const tn_tensor& t : outputs_of(args)) {
    if (!absent(t)) arena.allow(t);
  }
  const auto once = [&](const auto& work) {
    spoil_outputs(args);
    arena.arm();
    if (!work()) return false;
    EXPECT_TRUE(arena.intact());
    expect_bits(args, expected);
    return true;
  };
  if (instead != nullptr && once([&] { return instead(arena, args); })) return;
  for (const tn_isa isa : available_isas()) {
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(testing::Message() << tn_isa_name(isa) << ", " << threads << " threads");
      once([&] {
        run(args, on(isa, shared_pool(threads)));
        return true;
      });
    }
  }
}

Bits bits_of(const tn_tensor& t) { return absent(t) ? Bits{} : read_bits(t); }

}  // namespace

void spoil(const tn_tensor& t) {
  for (std::int64_t r = 0; r < rows_of(t); ++r) {
    for (std::int64_t c = 0; c < columns_of(t); ++c) set_bits(t, r, c, 0x5a5a5a5au);
  }
}

void spoil_outputs(const tn_forward_args& args) { spoil_all(outputs_of(args)); }
void spoil_outputs(const tn_backward_args& args) { spoil_all(outputs_of(args)); }

void expect_bits(const tn_forward_args& args, const ForwardBits& expected) {
  expect_tensor("y", args.y, expected.y);
  expect_tensor("residual_out", args.residual_out, expected.residual_out);
  expect_tensor("mean", args.mean, expected.mean);
  expect_tensor("rstd", args.rstd, expected.rstd);
}

void expect_bits(const tn_backward_args& args, const BackwardBits& expected) {
  expect_tensor("dx", args.dx, expected.dx);
  expect_tensor("dresidual", args.dresidual, expected.dresidual);
  expect_tensor("dweight", args.dweight, expected.dweight);
  expect_tensor("dbias", args.dbias, expected.dbias);
}

ForwardBits on_cpu(const tn_forward_args& a, const tn_exec& exec) {
  spoil_outputs(a);
  forward(a, exec);
  return {bits_of(a.y), bits_of(a.residual_out), bits_of(a.mean), bits_of(a.rstd)};
}

BackwardBits on_cpu(const tn_backward_args& a, const tn_exec& exec) {
  spoil_outputs(a);
  backward(a, exec);
  return {bits_of(a.dx), bits_of(a.dresidual), bits_of(a.dweight), bits_of(a.dbias)};
}

constinit Elsewhere elsewhere;

void check(Arena& arena, const tn_forward_args& args) {
  check_all(arena, args, model_forward(args), forward, elsewhere.forward);
}

void check(Arena& arena, const tn_backward_args& args) {
  check_all(arena, args, model_backward(args), backward, elsewhere.backward);
}

}  // namespace truenorm::test
