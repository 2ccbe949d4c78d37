// What `truenorm bench` was asked to time.
#pragma once

#include <truenorm/truenorm.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.hpp"

namespace truenorm::cli {

enum class Direction {
  forward,
  backward,  // dx and the gradients of weight and bias
  frozen     // dx alone, as for a weight that is not trained
};

// "forward", "backward", "frozen".
const char* direction_name(Direction direction);

struct BenchOp {
  std::string_view name;
  tn_op op;
  bool add;  // fused with the residual add
};

inline constexpr std::array<BenchOp, 4> kBenchOps{{{"rms_norm", TN_RMS_NORM, false},
                                                   {"add_rms_norm", TN_RMS_NORM, true},
                                                   {"layer_norm", TN_LAYER_NORM, false},
                                                   {"add_layer_norm", TN_LAYER_NORM, true}}};

// The matrices that an operation reads and writes; beside them weights and statistics count for nothing.
struct Traffic {
  int reads;
  int writes;
  friend auto operator<=>(const Traffic&, const Traffic&) = default;  // NOLINT(modernize-use-nullptr): its own `<=> 0`
};
Traffic traffic(const BenchOp& op, Direction direction);

struct BenchShape {
  int64_t m;
  int64_t n;
  friend bool operator==(const BenchShape&, const BenchShape&) = default;
};

// How matrices lie in memory.
struct BenchLayout {
  int64_t row_gap = 0;    // elements between a row's end and the next one's begin
  bool in_place = false;  // outputs are written over inputs, as BenchCall says
};

// As on the command line; an empty list means the default.
struct BenchOptions {
  std::vector<std::string> ops;
  std::vector<std::string> directions;
  std::vector<std::string> dtypes;
  std::string weight_dtype;         // empty: that of the matrices
  std::vector<std::string> shapes;  // "MxN"
  std::vector<int64_t> m;
  std::vector<int64_t> n;
  std::vector<std::string> threads;  // a number or "all"
  std::vector<std::string> isas;
  std::string device = "cpu";
  std::optional<int> rounds;         // 7, or 3 under quick
  std::optional<double> sample_ms;   // 20, or 4 under quick
  std::optional<int64_t> rotate_mb;  // 400 or, where that is more, twice the last-level cache; CUDA: 800
  bool programmatic = false;         // CUDA
  bool quick = false;
  int64_t row_gap = 0;
  bool in_place = false;
  std::string json;  // empty: none; "-": standard output, in place of the table
};

struct BenchPlan {
  Place place;
  std::vector<BenchOp> ops;
  std::vector<Direction> directions;
  std::vector<tn_dtype> dtypes;
  tn_dtype weight_dtype = TN_DTYPE_NONE;  // none: that of the matrices
  BenchLayout layout;
  std::vector<BenchShape> shapes;
  std::vector<int32_t> threads;   // on a CUDA device: 0 alone
  std::vector<std::string> isas;  // on a CUDA device: none
  int rounds = 0;
  double sample_seconds = 0;  // on a CUDA device: 0, a sample being one replay of a graph
  size_t rotate_bytes = 0;
  bool programmatic = false;  // a call may begin while the one before it is ending

  size_t groups() const { return shapes.size() * dtypes.size() * threads.size(); }

  // The weights' type beside matrices of `dtype`.
  tn_dtype weights_beside(tn_dtype dtype) const { return weight_dtype == TN_DTYPE_NONE ? dtype : weight_dtype; }
};

// Throws UserError naming the option that is wrong.
BenchPlan plan_bench(const BenchOptions& options);

// Each takes an option's text and throws UserError where it is anything else.
BenchOp parse_op(std::string_view text);
Direction parse_direction(std::string_view text);
// "8192x4096", of at most `most` elements.
BenchShape parse_shape(std::string_view text, std::string_view option, int64_t most = int64_t{1} << 31);

}  // namespace truenorm::cli
