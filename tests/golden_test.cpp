// The library and the model against vectors that tools/make_golden.py computed without any C++: the order of the sums
// is pinned here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "spec/types.hpp"
#include "support/call.hpp"
#include "support/json.hpp"

namespace truenorm::test {
namespace {

std::uint64_t splitmix64(std::uint64_t state) { return Rng(state).next(); }

// An input's element, before it is rounded to its tensor's type. make_golden.py has the same.
float generated(const std::string& kind, std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t r = splitmix64(seed * 0x100000000u + index);
  int centred = -2 * 0xffff;
  for (int shift = 0; shift < 64; shift += 16) centred += static_cast<int>(r >> shift & 0xffffu);
  const auto value = static_cast<float>(centred);
  if (kind == "normal") return value / 65536.0f;
  if (kind == "positive") return 0.5f + std::abs(value) / 262144.0f;
  if (kind == "large_mean") return 2000.0f + static_cast<float>(centred >> 4) / 4096.0f;
  if (kind != "wide") throw std::runtime_error("unknown kind of data: " + kind);
  if (r % 29 == 0) return std::copysign(0.0f, value);
  return std::ldexp(value, static_cast<int>(r % 41) - 36);
}

tn_dtype type_of(const Json& tensor) {
  const std::string& name = tensor["type"].text;
  return name == "f32" ? TN_F32 : name == "f16" ? TN_F16 : TN_BF16;
}

std::uint64_t fnv1a(tn_dtype type, const Bits& bits) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint32_t b : bits) {
    for (std::size_t k = 0; k < tn_dtype_size(type); ++k) hash = (hash ^ (b >> (8 * k) & 0xffu)) * 0x100000001b3u;
  }
  return hash;
}

Bits hexadecimal(const std::string& text) {
  std::istringstream words(text);
  Bits bits;
  for (std::string word; words >> word;) bits.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
  return bits;
}

float float_of(const Json& hex) { return spec::float_of(hexadecimal(hex.text).at(0)); }

// All elements where they are listed, the first few and a hash where not.
void expect_tensor(const std::string& name, const Json& expected, const Bits& got) {
  const bool all = expected.has("bits");
  const Bits listed = hexadecimal(expected[all ? "bits" : "head"].text);
  ASSERT_TRUE(all ? got.size() == listed.size() : got.size() >= listed.size()) << name;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    ASSERT_EQ(got[i], listed[i]) << name << "[" << i << "]: " << widened(type_of(expected), got[i]) << " and "
                                 << widened(type_of(expected), listed[i]);
  }
  EXPECT_EQ(fnv1a(type_of(expected), got), std::stoull(expected["fnv1a"].text, nullptr, 16)) << name;
}

class Golden : public testing::TestWithParam<Json> {
 protected:
  Arena arena;
  const Json& spec = GetParam();
  const std::int64_t m = spec["m"].number, n = spec["n"].number;

  bool is_vector(const std::string& name) const {
    return name == "weight" || name == "bias" || name == "mean" || name == "rstd" || name == "dweight" ||
           name == "dbias";
  }
  tn_tensor make(const std::string& name, tn_dtype type) {
    if (!is_vector(name)) return arena.matrix(type, m, n);
    return arena.vector(type, name == "mean" || name == "rstd" ? m : n);
  }
  tn_tensor input(const std::string& name) {
    if (!spec["inputs"].has(name)) return {};
    const Json& tensor = spec["inputs"][name];
    const tn_tensor t = make(name, type_of(tensor));
    const auto seed = static_cast<std::uint64_t>(tensor["seed"].number);
    for (std::int64_t r = 0; r < rows_of(t); ++r) {
      for (std::int64_t c = 0; c < columns_of(t); ++c) {
        set_value(t, r, c, generated(tensor["kind"].text, seed, static_cast<std::uint64_t>(r * columns_of(t) + c)));
      }
    }
    expect_tensor(name, tensor, read_bits(t));
    return t;
  }
  tn_tensor output(const std::string& name) {
    return spec["outputs"].has(name) ? make(name, type_of(spec["outputs"][name])) : tn_tensor{};
  }
  void expect(const std::string& name, const Bits& got) {
    if (spec["outputs"].has(name)) expect_tensor(name, spec["outputs"][name], got);
  }
  template <class Args>
  Args options(Args args) {
    args.rounding = spec["rounding"].text == "llama" ? TN_ROUND_LLAMA : TN_ROUND_ONCE;
    args.offset = float_of(spec["offset"]);
    return args;
  }
  tn_op op() const { return spec["op"].text == "layer_norm" ? TN_LAYER_NORM : TN_RMS_NORM; }
};

TEST_P(Golden, LibraryAndModelAgreeWithTheVectors) {
  if (spec["direction"].text == "forward") {
    tn_forward_args f = options(forward_args(op()));
    f.eps = float_of(spec["eps"]);
    f.x = input("x");
    f.residual = input("residual");
    f.weight = input("weight");
    f.bias = input("bias");
    f.y = output("y");
    f.residual_out = output("residual_out");
    f.mean = output("mean");
    f.rstd = output("rstd");
    const ForwardBits bits = model_forward(f);
    expect("y", bits.y);
    expect("residual_out", bits.residual_out);
    expect("mean", bits.mean);
    expect("rstd", bits.rstd);
    check(arena, f);  // the library against the model
  } else {
    tn_backward_args b = options(backward_args(op()));
    b.dy = input("dy");
    b.ds = input("ds");
    b.s = input("s");
    b.weight = input("weight");
    b.mean = input("mean");
    b.rstd = input("rstd");
    b.dx = output("dx");
    b.dresidual = output("dresidual");
    b.dweight = output("dweight");
    b.dbias = output("dbias");
    const BackwardBits bits = model_backward(b);
    expect("dx", bits.dx);
    expect("dresidual", bits.dresidual);
    expect("dweight", bits.dweight);
    expect("dbias", bits.dbias);
    check(arena, b);
  }
}

std::vector<Json> cases() {
  std::ifstream file(TRUENORM_SOURCE_DIR "/tests/golden/order1.json");
  std::stringstream text;
  text << file.rdbuf();
  const Json json = Json::parse(text.str());
  if (json["order_version"].number != tn_order_version()) throw std::runtime_error("vectors of another order version");
  return json["cases"].items;
}

INSTANTIATE_TEST_SUITE_P(Order0, Golden, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param["name"].text; });

}  // namespace

void PrintTo(const Json& json, std::ostream* out) { *out << json["name"].text; }

}  // namespace truenorm::test
