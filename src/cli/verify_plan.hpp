// Which cases `truenorm verify` runs.
#pragma once

#include <truenorm/truenorm.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace truenorm::cli {

// The lines of the accuracy table keep these apart.
enum class CaseKind {
  kUniform,  // every tensor has the same type
  kMixed,    // several types
  kMean      // LayerNorm of one type, of rows whose mean is 1 to 2000 times their spread
};

struct VerifyCase {
  tn_op op = TN_RMS_NORM;
  bool add = false;  // with a residual
  tn_rounding rounding = TN_ROUND_ONCE;
  float offset = 0;
  CaseKind kind = CaseKind::kUniform;
  tn_dtype x = TN_F32;
  tn_dtype y = TN_F32;
  tn_dtype residual = TN_DTYPE_NONE;  // these: NONE where absent or not asked for
  tn_dtype residual_out = TN_DTYPE_NONE;
  tn_dtype weight = TN_DTYPE_NONE;
  tn_dtype bias = TN_DTYPE_NONE;
  bool with_ds = false;  // the backward gets a gradient of residual_out
  int64_t n = 1;
  int64_t m = 0;

  int64_t elements() const { return n * m; }
};

inline constexpr std::array<std::string_view, 4> kVerifyOps{"rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm"};

// One of kVerifyOps.
std::string_view verify_op_name(tn_op op, bool add);
// "add_rms_norm llama offset 1 N 384 M 127: x bf16, y f32, residual f32, residual_out none, weight none, bias f16".
std::string describe(const VerifyCase& c);

struct PlanOptions {
  bool full = false;
  std::vector<int64_t> n;             // at least 1 each; empty: the set's own
  std::vector<int64_t> m;             // at least 0 each; empty: the set's own
  std::vector<std::string_view> ops;  // of kVerifyOps
};

// Uniform types meet every pair of N and M, with every rounding and offset. Each mix of the types of x, y, residual,
// weight and bias (those that are optional also absent), with every rounding and offset, meets one pair in the quick
// set; in the full set it meets every N, while M rotates (among the smallest ones, mostly, for large N), so that it
// meets every M of the full set's own list too.
std::vector<VerifyCase> make_plan(const PlanOptions& options);

// What a list of cases covers, counted from the cases themselves.
struct Coverage {
  int64_t cases = 0;
  std::vector<int64_t> n;  // all that occur, ascending
  std::vector<int64_t> m;
  int64_t pairs = 0;          // distinct (N, M)
  int64_t uniform_pairs = 0;  // the fewest of them that any (operation, rounding, offset, uniform type) meets
  int64_t mixes = 0;          // distinct mixes of types
  int64_t mix_n = 0;          // the fewest N that any (operation, rounding, offset, mix) meets
  int64_t mix_m = 0;          // the fewest M
  std::vector<float> offsets;
  std::vector<tn_rounding> roundings;
};
Coverage coverage_of(const std::vector<VerifyCase>& cases);

}  // namespace truenorm::cli
