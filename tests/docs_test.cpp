// The worked example of docs/numerics.md: recomputed line by line from the specification, and asked of the library.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "spec/norm.hpp"
#include "spec/reduce.hpp"
#include "truenorm/truenorm.hpp"

namespace {

namespace spec = truenorm::spec;
using Elements = spec::Elements<spec::Scalar>;
using Values = std::vector<float>;

constexpr int kN = 5;
constexpr float kEps = 1e-6f;
constexpr float kOffset = 1.0f;

std::map<std::string, Values> read_example() {
  std::ifstream file(TRUENORM_SOURCE_DIR "/docs/numerics.md");
  std::map<std::string, Values> lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      inside = line == "```text";
      continue;
    }
    std::istringstream words(line);
    std::string name, equals, value;
    if (!inside || !(words >> name >> equals) || equals != "=") continue;
    while (words >> value) lines[name].push_back(std::strtof(value.c_str(), nullptr));
  }
  return lines;
}

class WorkedExample : public testing::Test {
 protected:
  std::map<std::string, Values> doc = read_example();
  Values x = doc["x"], weight = doc["weight"], dy = doc["dy"];
};

TEST_F(WorkedExample, EachLineFollowsFromTheSpecification) {
  ASSERT_EQ(x.size(), kN);
  ASSERT_EQ(weight.size(), kN);
  ASSERT_EQ(dy.size(), kN);
  float padded[spec::kBlock] = {};
  std::copy(x.begin(), x.end(), padded);
  Values pairs;
  for (int i = 0; i < (kN + 1) / 2; ++i) {
    pairs.push_back(
        spec::pair_of_products<spec::Scalar>(padded[2 * i], padded[2 * i], padded[2 * i + 1], padded[2 * i + 1]));
  }
  EXPECT_EQ(pairs, doc["pairs"]);
  const float sum = spec::block_sum_of_products(padded, padded);
  EXPECT_EQ(Values{sum}, doc["sum"]);
  EXPECT_EQ(sum, (pairs[0] + pairs[1]) + (pairs[2] + 0.0f));
  const float rstd = spec::rms_rstd(sum, kN, kEps);
  EXPECT_EQ(Values{rstd}, doc["rstd"]);
  Values xhat, w;
  for (const float v : x) xhat.push_back(Elements::normalised(v, rstd));
  EXPECT_EQ(xhat, doc["xhat"]);
  for (const float v : weight) w.push_back(Elements::effective_weight(v, kOffset));
  EXPECT_EQ(w, doc["w"]);

  float t[spec::kBlock] = {}, padded_w[spec::kBlock] = {};
  Values y, y_llama, dx, dweight;
  for (std::size_t i = 0; i < kN; ++i) {
    t[i] = Elements::product(dy[i], x[i]);
    padded_w[i] = w[i];
    const auto bf16 = [](float v) { return spec::round_to(spec::Type::bf16, v); };
    y.push_back(bf16(Elements::output(xhat[i], w[i], spec::kNoAddend)));
    y_llama.push_back(bf16(Elements::output(bf16(xhat[i]), w[i], spec::kNoAddend)));
    dweight.push_back(Elements::grad_weight(0.0f, t[i], rstd));
  }
  EXPECT_EQ(y, doc["y"]);
  EXPECT_EQ(y_llama, doc["y_llama"]);
  EXPECT_EQ(dweight, doc["dweight"]);
  const float minus_slope = spec::minus_slope_of(spec::block_sum_of_products(t, padded_w), kN, rstd);
  EXPECT_EQ(Values{-minus_slope}, doc["slope"]);
  for (std::size_t i = 0; i < kN; ++i) {
    dx.push_back(
        spec::round_to(spec::Type::bf16, Elements::grad_rms(dy[i], w[i], x[i], minus_slope, rstd, spec::kNoAddend)));
  }
  EXPECT_EQ(dx, doc["dx"]);
}

TEST_F(WorkedExample, TheLibraryAgrees) {
  std::vector<std::uint16_t> x16, y16(kN), dx16(kN);
  for (const float v : x) x16.push_back(spec::narrow_bf16(v));
  const auto floats = [](const std::vector<std::uint16_t>& bits) {
    Values out;
    for (const std::uint16_t b : bits) out.push_back(spec::widen_bf16(b));
    return out;
  };
  using truenorm::Type;
  Values rstd(1), dweight(kN);
  truenorm::Context cpu;
  for (const auto rounding : {truenorm::Rounding::once, truenorm::Rounding::llama}) {
    cpu.rms_norm({.x = truenorm::matrix(x16.data(), Type::bf16, 1, kN),
                  .weight = truenorm::vector(weight.data(), kN),
                  .y = truenorm::matrix(y16.data(), Type::bf16, 1, kN),
                  .rstd = truenorm::vector(rstd.data(), 1),
                  .eps = kEps,
                  .offset = kOffset,
                  .rounding = rounding});
    EXPECT_EQ(floats(y16), doc[rounding == truenorm::Rounding::once ? "y" : "y_llama"]);
    EXPECT_EQ(rstd, doc["rstd"]);
  }
  cpu.rms_norm_backward({.dy = truenorm::matrix(dy.data(), 1, kN),
                         .s = truenorm::matrix(x16.data(), Type::bf16, 1, kN),
                         .weight = truenorm::vector(weight.data(), kN),
                         .rstd = truenorm::vector(rstd.data(), 1),
                         .dx = truenorm::matrix(dx16.data(), Type::bf16, 1, kN),
                         .dweight = truenorm::vector(dweight.data(), kN),
                         .offset = kOffset});
  EXPECT_EQ(floats(dx16), doc["dx"]);
  EXPECT_EQ(dweight, doc["dweight"]);
}

constexpr bool usable_in_constant_expressions() {
  float a[spec::kBlock] = {3.0f, 4.0f};
  return spec::block_sum_of_products(a, a) == 25.0f && spec::rms_rstd(50.0f, 2.0f, 0.0f) == 0.2f;
}
static_assert(usable_in_constant_expressions());

}  // namespace
