// Every refusal: its status, its sentence (which names the argument, what it got and what it needs), and that nothing
// was written.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

constexpr std::int64_t kM = 4, kN = 40;
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// A valid call of each direction, with every operand.
class Validation : public testing::Test {
 protected:
  Arena arena;
  Rng rng{17};
  tn_forward_args f = forward_args(TN_LAYER_NORM);
  tn_backward_args b = backward_args(TN_LAYER_NORM);
  std::vector<std::byte> scratch = std::vector<std::byte>(1 << 20);
  tn_workspace workspace{scratch.data(), scratch.size(), nullptr, 0};
  tn_exec exec = on();
  tn_error error{};

  tn_tensor matrix(tn_dtype type = TN_F32) {
    const tn_tensor t = arena.matrix(type, kM, kN);
    fill(t, rng, Fill::normal);
    return t;
  }
  tn_tensor vector(std::int64_t n, tn_dtype type = TN_F32) {
    const tn_tensor t = arena.vector(type, n);
    fill(t, rng, Fill::normal);
    return t;
  }

  void SetUp() override {
    f.x = matrix();
    f.residual = matrix();
    f.weight = vector(kN);
    f.bias = vector(kN);
    f.y = matrix();
    f.residual_out = matrix();
    f.mean = vector(kM);
    f.rstd = vector(kM);
    b.dy = matrix();
    b.ds = matrix();
    b.s = matrix();
    b.weight = f.weight;
    b.mean = vector(kM);
    b.rstd = vector(kM);
    b.dx = matrix();
    b.dresidual = matrix();
    b.dweight = vector(kN);
    b.dbias = vector(kN);
  }

  tn_status query(const tn_forward_args& a) { return query_with(tn_forward_workspace, a); }
  tn_status query(const tn_backward_args& a) { return query_with(tn_backward_workspace, a); }
  template <class Query, class Args>
  tn_status query_with(const Query& call, const Args& a) {
    tn_workspace out{nullptr, 77, nullptr, 77};
    const tn_status status = call(&exec, &a, &out, &error);
    const bool untouched = out.size == 77 && out.counters_size == 77;
    EXPECT_EQ(untouched, status != TN_OK);
    return status;
  }

  tn_status run(const tn_forward_args& a) { return tn_forward(&exec, &a, &workspace, &error); }
  tn_status run(const tn_backward_args& a) { return tn_backward(&exec, &a, &workspace, &error); }

  template <class Args>
  void expect_refused(const Args& a, const std::string& message, tn_status status = TN_INVALID_ARGUMENT,
                      bool needs_data = false) {
    SCOPED_TRACE(message);
    arena.arm();
    EXPECT_EQ(run(a), status);
    EXPECT_EQ(error.message, message);
    EXPECT_TRUE(arena.intact());
    error = {};
    EXPECT_EQ(query(a), needs_data ? TN_OK : status);
    EXPECT_EQ(error.message, needs_data ? "" : message);
  }
  // Found only once there are pointers: a workspace query does not see it.
  template <class Args>
  void expect_refused_with_data(const Args& a, const std::string& message) {
    expect_refused(a, message, TN_INVALID_ARGUMENT, true);
  }
};

TEST_F(Validation, TheValidCallsAreValid) {
  EXPECT_EQ(query(f), TN_OK) << error.message;
  EXPECT_EQ(run(f), TN_OK) << error.message;
  EXPECT_EQ(query(b), TN_OK) << error.message;
  EXPECT_EQ(run(b), TN_OK) << error.message;
  EXPECT_STREQ(error.message, "");
  EXPECT_EQ(tn_backward(nullptr, &b, &workspace, nullptr), TN_OK);  // exec and error are optional
}

// ---- Structs and the place of the call

TEST_F(Validation, Null) {
  EXPECT_EQ(tn_forward(&exec, nullptr, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "args: got NULL; needs tn_forward_args");
  EXPECT_EQ(tn_backward(&exec, nullptr, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "args: got NULL; needs tn_backward_args");
  EXPECT_EQ(tn_forward_workspace(&exec, nullptr, &workspace, &error), TN_INVALID_ARGUMENT);
  EXPECT_EQ(tn_forward_workspace(&exec, &f, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "out: got NULL; needs a place for the sizes");
  EXPECT_EQ(tn_backward_workspace(&exec, &b, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "out: got NULL; needs a place for the sizes");
}

TEST_F(Validation, StructSizes) {
  const auto message = [](const char* name, std::size_t got, std::size_t needed) {
    return std::string(name) + ".struct_size: got " + std::to_string(got) + "; needs sizeof the struct, " +
           std::to_string(needed) + " in version " + tn_version();
  };
  for (const std::size_t less : {std::size_t{0}, sizeof f - 1}) {
    f.struct_size = less;
    expect_refused(f, message("args", less, sizeof f));
    b.struct_size = less;
    expect_refused(b, message("args", less, sizeof b));
  }
  exec.struct_size = sizeof exec - 1;
  expect_refused(f, message("exec", sizeof exec - 1, sizeof exec));
  exec.struct_size = sizeof exec;
  // A later version's struct: what it may ask for is not known here.
  f.struct_size = sizeof f + 8;
  expect_refused(f, message("args", sizeof f + 8, sizeof f), TN_UNSUPPORTED);
  b.struct_size = sizeof b + 8;
  expect_refused(b, message("args", sizeof b + 8, sizeof b), TN_UNSUPPORTED);
  exec.struct_size = sizeof exec + 8;
  expect_refused(b, message("exec", sizeof exec + 8, sizeof exec), TN_UNSUPPORTED);
}

// As callers that know none of the later fields have it: no more memory than it says, its padding whatever it was.
TEST_F(Validation, AnEarlierVersionsExec) {
  struct Earlier {
    std::size_t struct_size;
    tn_device_type device;
    std::int32_t device_index;
    void* stream;
    tn_threads* threads;
    tn_isa isa;
  };
  const auto earlier = std::make_unique<Earlier>();
  std::memset(earlier.get(), 0xff, sizeof(Earlier));
  earlier->struct_size = sizeof(Earlier);
  earlier->device = TN_CPU;
  earlier->device_index = 0;
  earlier->stream = nullptr;
  earlier->threads = nullptr;
  earlier->isa = TN_ISA_AUTO;
  const auto* const there = reinterpret_cast<const tn_exec*>(earlier.get());
  tn_workspace needed{};
  EXPECT_EQ(tn_forward_workspace(there, &f, &needed, &error), TN_OK) << error.message;
  EXPECT_EQ(tn_forward(there, &f, &workspace, &error), TN_OK) << error.message;
  EXPECT_EQ(tn_backward_workspace(there, &b, &needed, &error), TN_OK) << error.message;
  EXPECT_EQ(tn_backward(there, &b, &workspace, &error), TN_OK) << error.message;
  earlier->isa = 5;
  EXPECT_EQ(tn_forward(there, &f, &workspace, &error), TN_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "isa: got 5; needs one of tn_isa");
  EXPECT_GT(sizeof(tn_exec), sizeof(Earlier));
}

TEST_F(Validation, Device) {
  exec.device = TN_CUDA;
  if (const int count = tn_device_count(TN_CUDA); count == 0) {
    const std::string why =
        tn_has_backend(TN_CUDA) == 0 ? "this build has no CUDA backend" : "no CUDA device can be used";
    expect_refused(f, "device: got cuda; needs cpu, since " + why, TN_NO_DEVICE);
    expect_refused(b, "device: got cuda; needs cpu, since " + why, TN_NO_DEVICE);
  } else {
    exec.device_index = count;
    const std::string needs = "; needs 0 to " + std::to_string(count - 1);
    expect_refused(f, "device_index: got " + std::to_string(count) + needs, TN_NO_DEVICE);
    exec.device_index = -1;
    expect_refused(b, "device_index: got -1" + needs, TN_NO_DEVICE);
    exec.device_index = 0;
  }
  exec.device = 7;
  expect_refused(f, "device: got 7; needs TN_CPU (0) or TN_CUDA (1)");
  exec = on();
  exec.device_index = 1;
  expect_refused(f, "device_index: got 1; needs 0 for the CPU", TN_NO_DEVICE);
  exec = on();
  exec.stream = &exec;
  expect_refused(f, "stream: got a pointer; needs NULL for the CPU");
}

TEST_F(Validation, Programmatic) {
  for (const tn_device_type device : {TN_CPU, TN_CUDA}) {
    for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 32}) {
      exec = on();
      exec.device = device;
      exec.programmatic = value;
      expect_refused(f, "programmatic: got " + std::to_string(value) + "; needs 0 or 1");
      expect_refused(b, "programmatic: got " + std::to_string(value) + "; needs 0 or 1");
    }
  }
  exec = on();
  exec.programmatic = 1;
  expect_refused(f, "programmatic: got 1; needs 0 for the CPU");
  expect_refused(b, "programmatic: got 1; needs 0 for the CPU");
}

TEST_F(Validation, Isa) {
  for (const tn_isa isa : {-1, 5, 1000}) {
    exec = on(isa);
    expect_refused(f, "isa: got " + std::to_string(isa) + "; needs one of tn_isa");
  }
  for (const tn_isa isa : {TN_ISA_SCALAR, TN_ISA_AVX2, TN_ISA_AVX512, TN_ISA_NEON}) {
    if (tn_isa_available(isa) != 0) continue;
    exec = on(isa);
    const std::string who = tn_isa_built(isa) != 0 ? "machine has" : "build has code for";
    expect_refused(f, std::string("isa: got ") + tn_isa_name(isa) + "; needs one that this " + who, TN_UNSUPPORTED);
  }
  for (const tn_isa isa : {TN_ISA_AUTO, TN_ISA_SCALAR, TN_ISA_AVX2, TN_ISA_AVX512, TN_ISA_NEON}) {
    EXPECT_GE(tn_isa_built(isa), tn_isa_available(isa)) << tn_isa_name(isa);
  }
  // Of the vector sets one architecture has no other's.
  EXPECT_EQ(tn_isa_built(TN_ISA_AVX2), tn_isa_built(TN_ISA_AVX512));
  EXPECT_EQ(tn_isa_built(TN_ISA_AVX2) + tn_isa_built(TN_ISA_NEON), 1);
  EXPECT_EQ(tn_isa_built(17), 0);
  EXPECT_EQ(tn_isa_available(17), 0);
  EXPECT_EQ(tn_isa_available(TN_ISA_AUTO), 1);
  EXPECT_EQ(tn_isa_available(TN_ISA_SCALAR), 1);
}

// ---- Options

TEST_F(Validation, Op) {
  f.op = b.op = 0;
  expect_refused(f, "op: got 0; needs TN_RMS_NORM (1) or TN_LAYER_NORM (2)");
  expect_refused(b, "op: got 0; needs TN_RMS_NORM (1) or TN_LAYER_NORM (2)");
  f.op = -3;
  expect_refused(f, "op: got -3; needs TN_RMS_NORM (1) or TN_LAYER_NORM (2)");
}

TEST_F(Validation, Rounding) {
  f.rounding = b.rounding = 2;
  expect_refused(f, "rounding: got 2; needs TN_ROUND_ONCE (0) or TN_ROUND_LLAMA (1)");
  expect_refused(b, "rounding: got 2; needs TN_ROUND_ONCE (0) or TN_ROUND_LLAMA (1)");
  f.rounding = b.rounding = TN_ROUND_LLAMA;
  expect_refused(f, "rounding: got TN_ROUND_LLAMA with layer_norm; needs TN_ROUND_ONCE there");
  expect_refused(b, "rounding: got TN_ROUND_LLAMA with layer_norm; needs TN_ROUND_ONCE there");
}

TEST_F(Validation, Numbers) {
  f.offset = b.offset = INFINITY;
  expect_refused(f, "offset: got inf; needs a finite number");
  expect_refused(b, "offset: got inf; needs a finite number");
  f.offset = std::nanf("");
  expect_refused(f, "offset: got nan; needs a finite number");
  f.offset = 0;
  for (const auto& [eps, text] :
       {std::pair{-1.0f, "-1"}, std::pair{std::nanf(""), "nan"}, std::pair{INFINITY, "inf"}}) {
    f.eps = eps;
    expect_refused(f, std::string("eps: got ") + text + "; needs a finite number, at least 0");
  }
}

TEST_F(Validation, InPlaceFlagsOfTheOtherDirection) {
  f.in_place = TN_DX_OVER_DY;
  expect_refused(f, "in_place: got flags 0x10; needs a combination of 0xf in this direction");
  b.in_place = TN_Y_OVER_X | TN_DX_OVER_DY;
  expect_refused(b, "in_place: got flags 0x11; needs a combination of 0xf0 in this direction");
}

TEST_F(Validation, MeanWithRmsNorm) {
  f.op = b.op = TN_RMS_NORM;
  expect_refused(f, "mean: got a tensor with rms_norm, which has no mean; needs layer_norm, or none");
  expect_refused(b, "mean: got a tensor with rms_norm, which has no mean; needs layer_norm, or none");
}

TEST_F(Validation, XType) {
  b.x_dtype = 9;
  expect_refused(b, "x_dtype: got type 9; needs f32 (1), f16 (2), bf16 (3) or none (0)");
}

// ---- Which tensors there must be

TEST_F(Validation, RequiredTensors) {
  const auto without = [](auto args, tn_tensor std::remove_reference_t<decltype(args)>::*member) {
    args.*member = {};
    return args;
  };
  expect_refused(without(f, &tn_forward_args::x), "x: got no tensor; needs one");
  expect_refused(without(f, &tn_forward_args::residual),
                 "residual_out: asked for without residual; needs residual, or no residual_out");
  expect_refused(without(b, &tn_backward_args::s), "s: got no tensor; needs one");
  expect_refused(without(b, &tn_backward_args::mean), "mean: got no tensor; needs one");
  expect_refused(without(b, &tn_backward_args::rstd), "rstd: got no tensor; needs one");
  expect_refused(without(b, &tn_backward_args::weight),
                 "dweight: asked for without weight; needs the forward's weight");
  tn_backward_args no_gradient = b;
  no_gradient.dy = no_gradient.ds = {};
  expect_refused(no_gradient, "dy: got no tensor; needs one, or ds");
}

TEST_F(Validation, NoOutput) {
  f.y = f.residual_out = f.mean = f.rstd = {};
  expect_refused(f, "y: no output is asked for; needs at least one of y, residual_out, mean, rstd");
  b.dx = b.dresidual = b.dweight = b.dbias = {};
  expect_refused(b, "dx: no output is asked for; needs at least one of dx, dresidual, dweight, dbias");
}

// ---- Each tensor's own form. Every matrix and every vector of both directions is checked under its name.

using Change = std::function<void(tn_tensor&)>;

class EveryTensor : public Validation {
 protected:
  void expect_matrices_refused(const Change& change, const std::string& message, bool needs_data = false,
                               bool first = true) {
    tn_tensor tn_forward_args::*const forward_matrices[] = {&tn_forward_args::x, &tn_forward_args::residual,
                                                            &tn_forward_args::y, &tn_forward_args::residual_out};
    const char* const forward_names[] = {"x", "residual", "y", "residual_out"};
    for (int i = first ? 0 : 1; i < 4; ++i)
      refuse(f, forward_matrices[i], forward_names[i], change, message, needs_data);
    tn_tensor tn_backward_args::*const backward_matrices[] = {&tn_backward_args::dy, &tn_backward_args::ds,
                                                              &tn_backward_args::s, &tn_backward_args::dx,
                                                              &tn_backward_args::dresidual};
    const char* const backward_names[] = {"dy", "ds", "s", "dx", "dresidual"};
    for (int i = first ? 0 : 1; i < 5; ++i)
      refuse(b, backward_matrices[i], backward_names[i], change, message, needs_data);
  }
  void expect_vectors_refused(const Change& change, const std::string& message, bool needs_data = false) {
    refuse(f, &tn_forward_args::weight, "weight", change, message, needs_data);
    refuse(f, &tn_forward_args::bias, "bias", change, message, needs_data);
    refuse(b, &tn_backward_args::weight, "weight", change, message, needs_data);
    refuse(b, &tn_backward_args::dweight, "dweight", change, message, needs_data);
    refuse(b, &tn_backward_args::dbias, "dbias", change, message, needs_data);
  }
  void expect_statistics_refused(const Change& change, const std::string& message, bool needs_data = false) {
    refuse(f, &tn_forward_args::mean, "mean", change, message, needs_data);
    refuse(f, &tn_forward_args::rstd, "rstd", change, message, needs_data);
    refuse(b, &tn_backward_args::mean, "mean", change, message, needs_data);
    refuse(b, &tn_backward_args::rstd, "rstd", change, message, needs_data);
  }

 private:
  template <class Args>
  void refuse(Args args, tn_tensor Args::*member, const char* name, const Change& change, const std::string& message,
              bool needs_data) {
    change(args.*member);
    expect_refused(args, std::string(name) + message, TN_INVALID_ARGUMENT, needs_data);
  }
};

TEST_F(EveryTensor, Type) {
  for (const tn_dtype type : {-1, 4, 99}) {
    const std::string got = ": got type " + std::to_string(type) + "; needs f32 (1), f16 (2) or bf16 (3)";
    const Change change = [type](tn_tensor& t) { t.dtype = type; };
    expect_matrices_refused(change, got);
    expect_vectors_refused(change, got);
    expect_statistics_refused(change, got);
  }
  expect_statistics_refused([](tn_tensor& t) { t.dtype = TN_BF16; }, ": got type bf16; needs f32");
  expect_statistics_refused([](tn_tensor& t) { t.dtype = TN_F16; }, ": got type f16; needs f32");
}

TEST_F(EveryTensor, Rank) {
  for (const int rank : {-1, 0, 4, 1000}) {
    expect_matrices_refused([rank](tn_tensor& t) { t.ndim = rank; },
                            ": got " + std::to_string(rank) + " dimensions; needs 1 to 3");
  }
  for (const int rank : {0, 2, 3}) {
    const std::string got = ": got " + std::to_string(rank) + " dimensions; needs 1";
    const Change change = [rank](tn_tensor& t) { t.ndim = rank; };
    expect_vectors_refused(change, got);
    expect_statistics_refused(change, got);
  }
}

TEST_F(EveryTensor, Sizes) {
  expect_matrices_refused([](tn_tensor& t) { t.shape[0] = -1; }, ": got size -1 in dimension 0; needs at least 0");
  expect_matrices_refused([](tn_tensor& t) { t.shape[1] = -5; }, ": got size -5 in dimension 1; needs at least 0");
  expect_matrices_refused([](tn_tensor& t) { t.shape[1] = 0; }, ": got hidden size 0; needs at least 1");
  expect_matrices_refused(
      [](tn_tensor& t) {
        t = {t.data, t.dtype, 3, {std::int64_t{1} << 40, std::int64_t{1} << 40, kN}, {kN, kN, 1}};
      },
      ": got a shape of more than 2^63 rows; needs fewer");
  expect_vectors_refused([](tn_tensor& t) { --t.shape[0]; }, ": got 39 elements; needs 40, the hidden size");
  expect_vectors_refused([](tn_tensor& t) { t.shape[0] = -1; }, ": got -1 elements; needs 40, the hidden size");
  expect_statistics_refused([](tn_tensor& t) { ++t.shape[0]; }, ": got 5 elements; needs 4, the number of rows");
}

TEST_F(EveryTensor, SizesThatDisagreeWithTheFirstMatrix) {
  const auto refuse = [&](const Change& change, const std::string& before, const std::string& after) {
    for (tn_tensor tn_forward_args::*member :
         {&tn_forward_args::residual, &tn_forward_args::y, &tn_forward_args::residual_out}) {
      tn_forward_args args = f;
      change(args.*member);
      arena.arm();
      EXPECT_EQ(run(args), TN_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.message).find(before + "x" + after), std::string::npos) << error.message;
      EXPECT_TRUE(arena.intact());
    }
    for (tn_tensor tn_backward_args::*member :
         {&tn_backward_args::ds, &tn_backward_args::s, &tn_backward_args::dx, &tn_backward_args::dresidual}) {
      tn_backward_args args = b;
      change(args.*member);
      arena.arm();
      EXPECT_EQ(run(args), TN_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.message).find(before + "dy" + after), std::string::npos) << error.message;
      EXPECT_TRUE(arena.intact());
    }
  };
  refuse([](tn_tensor& t) { t.shape[1] = 39; }, ": got hidden size 39; needs 40, as ", " has");
  refuse([](tn_tensor& t) { t.shape[0] = 5; }, ": got 5 rows; needs 4, as ", " has");
  refuse([](tn_tensor& t) { t.ndim = 1, t.shape[0] = kN; }, ": got 1 rows; needs 4, as ", " has");
}

TEST_F(EveryTensor, Strides) {
  expect_matrices_refused([](tn_tensor& t) { t.strides[1] = 2; },
                          ": got stride 2 in its last dimension; needs 1 (make it contiguous there)");
  expect_matrices_refused([](tn_tensor& t) { t.strides[1] = -1; },
                          ": got stride -1 in its last dimension; needs 1 (make it contiguous there)");
  expect_matrices_refused([](tn_tensor& t) { t.strides[0] = -kN; },
                          ": got stride -40 in dimension 0; needs at least 0");
  expect_matrices_refused([](tn_tensor& t) { t.strides[0] = kHuge / 2; },
                          ": got strides that reach beyond 2^63 elements; needs less");
  expect_matrices_refused([](tn_tensor& t) { t.strides[0] = kHuge / 8; },
                          ": got strides that reach beyond 2^63 bytes; needs less");
  expect_vectors_refused([](tn_tensor& t) { t.strides[0] = 2; }, ": got stride 2; needs 1");
  expect_statistics_refused([](tn_tensor& t) { t.strides[0] = 0; }, ": got stride 0; needs 1");
}

TEST_F(EveryTensor, Pointers) {
  const Change null = [](tn_tensor& t) { t.data = nullptr; };
  expect_matrices_refused(null, ": got NULL data; needs a pointer", true);
  expect_vectors_refused(null, ": got NULL data; needs a pointer", true);
  expect_statistics_refused(null, ": got NULL data; needs a pointer", true);
  const Change odd = [](tn_tensor& t) { t.data = static_cast<std::byte*>(t.data) + 2; };
  const std::string misaligned = ": got an address that is no multiple of 4; needs alignment to its elements";
  expect_matrices_refused(odd, misaligned, true);
  expect_vectors_refused(odd, misaligned, true);
  expect_statistics_refused(odd, misaligned, true);
}

// Huge but consistent shapes are fine for a query, and overflow nothing.
TEST_F(Validation, QueriesOfHugeShapes) {
  tn_backward_args huge = backward_args(TN_RMS_NORM);
  huge.dy = huge.s = huge.dx = tn_matrix(nullptr, TN_BF16, std::int64_t{1} << 40, 1 << 20);
  huge.rstd = tn_vector(nullptr, TN_F32, std::int64_t{1} << 40);
  huge.weight = huge.dweight = tn_vector(nullptr, TN_BF16, 1 << 20);
  tn_workspace out{};
  EXPECT_EQ(tn_backward_workspace(nullptr, &huge, &out, &error), TN_OK) << error.message;
  EXPECT_GT(out.size, std::size_t{64} << 22);
  huge.dy.shape[1] = huge.s.shape[1] = huge.dx.shape[1] = kHuge;
  EXPECT_EQ(tn_backward_workspace(nullptr, &huge, &out, &error), TN_INVALID_ARGUMENT);
}

// A row of 2^60 elements can be described; the strips' scratch of its weight gradient cannot.
TEST_F(Validation, ScratchThatNoAddressSpaceHolds) {
  constexpr std::int64_t n = std::int64_t{1} << 60;
  tn_backward_args huge = backward_args(TN_RMS_NORM);
  huge.dy = huge.s = tn_matrix(nullptr, TN_BF16, 1000, n);
  huge.dy.strides[0] = huge.s.strides[0] = 0;
  huge.rstd = tn_vector(nullptr, TN_F32, 1000);
  huge.weight = huge.dweight = tn_vector(nullptr, TN_BF16, n);
  tn_workspace out{};
  EXPECT_NE(tn_backward_workspace(nullptr, &huge, &out, &error), TN_OK) << out.size;
}

// ---- Memory

TEST_F(Validation, RowsOfAnOutputThatOverlap) {
  f.y.strides[0] = kN - 1;
  expect_refused_with_data(f, "y: got strides that make its rows overlap; needs rows apart, since it is written");
  b.dx.strides[0] = 0;
  expect_refused_with_data(b, "dx: got strides that make its rows overlap; needs rows apart, since it is written");
}

TEST_F(Validation, OutputOverAnInputWithoutPermission) {
  const auto refuse = [&](tn_tensor tn_forward_args::*output, tn_tensor tn_forward_args::*input, const char* message) {
    tn_forward_args args = f;
    args.*output = args.*input;
    expect_refused_with_data(args, message);
  };
  const auto refuse_backward = [&](tn_tensor tn_backward_args::*output, tn_tensor tn_backward_args::*input,
                                   const char* message) {
    tn_backward_args args = b;
    args.*output = args.*input;
    expect_refused_with_data(args, message);
  };
  using F = tn_forward_args;
  using B = tn_backward_args;
  const std::string or_view = "needs memory of its own, or the very same view with ";
  refuse(&F::y, &F::x, ("y: shares memory with x; " + or_view + "TN_Y_OVER_X set in in_place").c_str());
  refuse(&F::y, &F::residual,
         ("y: shares memory with residual; " + or_view + "TN_Y_OVER_RESIDUAL set in in_place").c_str());
  refuse(&F::residual_out, &F::x,
         ("residual_out: shares memory with x; " + or_view + "TN_RESIDUAL_OUT_OVER_X set in in_place").c_str());
  refuse(&F::residual_out, &F::residual,
         ("residual_out: shares memory with residual; " + or_view + "TN_RESIDUAL_OUT_OVER_RESIDUAL set in in_place")
             .c_str());
  refuse(&F::y, &F::residual_out, "y: shares memory with residual_out; needs memory of its own");
  refuse(&F::mean, &F::rstd, "mean: shares memory with rstd; needs memory of its own");
  refuse_backward(&B::dx, &B::dy, ("dx: shares memory with dy; " + or_view + "TN_DX_OVER_DY set in in_place").c_str());
  refuse_backward(&B::dx, &B::ds, ("dx: shares memory with ds; " + or_view + "TN_DX_OVER_DS set in in_place").c_str());
  refuse_backward(&B::dx, &B::s, ("dx: shares memory with s; " + or_view + "TN_DX_OVER_X set in in_place").c_str());
  refuse_backward(&B::dresidual, &B::ds,
                  ("dresidual: shares memory with ds; " + or_view + "TN_DRESIDUAL_OVER_DS set in in_place").c_str());
  refuse_backward(&B::dresidual, &B::dy, "dresidual: shares memory with dy; needs memory of its own");
  refuse_backward(&B::dresidual, &B::s, "dresidual: shares memory with s; needs memory of its own");
  refuse_backward(&B::dweight, &B::weight, "dweight: shares memory with weight; needs memory of its own");
  refuse_backward(&B::dbias, &B::dweight, "dweight: shares memory with dbias; needs memory of its own");
}

TEST_F(Validation, PermissionIsForTheVerySameView) {
  f.in_place = TN_Y_OVER_X;
  const std::string message =
      "y: shares memory with x; needs memory of its own, or the very same view with TN_Y_OVER_X set in in_place";
  const tn_tensor wide = matrix();
  f.x = f.y = wide;
  f.x.shape[1] = f.y.shape[1] = kN;
  EXPECT_EQ(query(f), TN_OK);
  tn_forward_args shifted = f;  // one row on
  shifted.x = shifted.y = tn_matrix(arena.matrix(TN_F32, kM + 1, kN).data, TN_F32, kM, kN);
  shifted.y.data = row_at(shifted.x, 1);
  expect_refused_with_data(shifted, message);
  tn_forward_args other_type = f;  // the same bytes
  other_type.y.dtype = TN_BF16;
  other_type.y.strides[0] = 2 * kN;
  expect_refused_with_data(other_type, message);
  EXPECT_EQ(run(f), TN_OK) << error.message;
}

TEST_F(Validation, PartialOverlap) {
  f.y.data = static_cast<float*>(f.x.data) + 1;
  f.in_place = TN_Y_OVER_X;
  expect_refused_with_data(
      f, "y: shares memory with x; needs memory of its own, or the very same view with TN_Y_OVER_X set in in_place");
  b.dx.data = row_at(b.s, kM - 1);
  expect_refused_with_data(
      b, "dx: shares memory with s; needs memory of its own, or the very same view with TN_DX_OVER_X set in in_place");
  b.dx = matrix();
  b.dweight.data = static_cast<float*>(b.dx.data) + 17;
  expect_refused_with_data(b, "dx: shares memory with dweight; needs memory of its own");
}

TEST_F(Validation, InterleavedSlicesOfOneBufferAreApart) {
  const tn_tensor buffer = arena.matrix(TN_F32, kM, 3 * kN);
  fill(buffer, rng, Fill::normal);
  const auto slice = [&](int i) {
    tn_tensor t = buffer;
    t.data = static_cast<float*>(t.data) + i * kN;
    t.shape[1] = kN;
    return t;
  };
  f.x = slice(1);
  f.y = slice(0);
  f.residual_out = slice(2);
  arena.allow(f.y);
  arena.allow(f.residual_out);
  arena.allow(f.mean);
  arena.allow(f.rstd);
  const ForwardBits expected = model_forward(f);
  arena.arm();
  EXPECT_EQ(run(f), TN_OK) << error.message;
  EXPECT_TRUE(arena.intact());
  expect_bits(f, expected);
  f.y.data = static_cast<float*>(f.y.data) + 1;
  EXPECT_EQ(run(f), TN_INVALID_ARGUMENT);
}

TEST_F(Validation, InputsMayShareMemory) {
  f.residual = f.x;
  f.bias = f.weight;
  const ForwardBits expected = model_forward(f);
  EXPECT_EQ(run(f), TN_OK) << error.message;
  expect_bits(f, expected);
}

// ---- Workspace

TEST_F(Validation, Workspace) {
  tn_workspace needed{};
  ASSERT_EQ(tn_backward_workspace(&exec, &b, &needed, &error), TN_OK);
  ASSERT_GT(needed.size, 0u);
  const std::string bytes = std::to_string(needed.size);
  const auto refuse = [&](const tn_workspace* given, const std::string& message) {
    arena.arm();
    EXPECT_EQ(tn_backward(&exec, &b, given, &error), TN_WORKSPACE_TOO_SMALL);
    EXPECT_EQ(error.message, message);
    EXPECT_TRUE(arena.intact());
  };
  refuse(nullptr, "workspace: got none; needs " + bytes + " bytes");
  const tn_workspace null{nullptr, needed.size, nullptr, 0};
  refuse(&null, "workspace: got none; needs " + bytes + " bytes");
  const tn_workspace small{scratch.data(), needed.size - 1, nullptr, 0};
  refuse(&small, "workspace: got " + std::to_string(needed.size - 1) + " bytes; needs " + bytes);
  const tn_workspace enough{scratch.data() + 1, needed.size, nullptr, 0};
  EXPECT_EQ(tn_backward(&exec, &b, &enough, &error), TN_OK) << error.message;
}

// ---- Names

TEST(Names, OfEveryValueAndOfOthers) {
  EXPECT_STREQ(tn_status_name(TN_OK), "ok");
  EXPECT_STREQ(tn_status_name(TN_INVALID_ARGUMENT), "invalid argument");
  EXPECT_STREQ(tn_status_name(TN_UNSUPPORTED), "unsupported");
  EXPECT_STREQ(tn_status_name(TN_WORKSPACE_TOO_SMALL), "workspace too small");
  EXPECT_STREQ(tn_status_name(TN_NO_DEVICE), "no such device");
  EXPECT_STREQ(tn_status_name(TN_OUT_OF_MEMORY), "out of memory");
  EXPECT_STREQ(tn_status_name(TN_DEVICE_ERROR), "device error");
  EXPECT_STREQ(tn_status_name(-7), "unknown status");
  EXPECT_STREQ(tn_dtype_name(TN_F32), "f32");
  EXPECT_STREQ(tn_dtype_name(TN_F16), "f16");
  EXPECT_STREQ(tn_dtype_name(TN_BF16), "bf16");
  EXPECT_STREQ(tn_dtype_name(TN_DTYPE_NONE), "none");
  EXPECT_STREQ(tn_dtype_name(12), "invalid");
  EXPECT_EQ(tn_dtype_size(TN_F32), 4u);
  EXPECT_EQ(tn_dtype_size(TN_F16), 2u);
  EXPECT_EQ(tn_dtype_size(TN_BF16), 2u);
  EXPECT_EQ(tn_dtype_size(TN_DTYPE_NONE), 0u);
  EXPECT_STREQ(tn_isa_name(TN_ISA_AUTO), "auto");
  EXPECT_STREQ(tn_isa_name(TN_ISA_SCALAR), "scalar");
  EXPECT_STREQ(tn_isa_name(TN_ISA_AVX2), "avx2");
  EXPECT_STREQ(tn_isa_name(TN_ISA_AVX512), "avx512");
  EXPECT_STREQ(tn_isa_name(TN_ISA_NEON), "neon");
  EXPECT_STREQ(tn_isa_name(99), "invalid");
  EXPECT_EQ(tn_device_count(TN_CPU), 1);
  EXPECT_EQ(tn_has_backend(TN_CPU), 1);
  EXPECT_EQ(tn_order_version(), 1);
  EXPECT_STREQ(tn_version(), "0.1.0");
}

}  // namespace
}  // namespace truenorm::test
