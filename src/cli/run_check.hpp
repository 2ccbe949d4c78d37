#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run_call.hpp"

namespace truenorm::cli {

// How one output compares with the FP64 oracle.
struct CheckLine {
  std::string output;
  tn_dtype dtype = TN_DTYPE_NONE;
  bool passed = false;
  // Matrices and statistics.
  double correct_share = 1;
  int64_t worst_ulp = 0;   // says nothing of FP32, whose arithmetic is its storage format
  double worst_units = 0;  // FP32 units (2^-23) of its terms that an output is from being the exact value's rounding
  double relative_l2 = 0;
  double ideal_relative_l2 = 0;  // of the correctly rounded result
  // dweight and dbias: the largest error of the sums before their rounding, in bars (1 just meets it).
  bool column_sums = false;
  double worst_bars = 0;
};

// Compares each output of a call that has run with the oracle, by the bars of docs/numerics.md.
std::vector<CheckLine> check_outputs(const RunCall& call, const Executor& executor);

}  // namespace truenorm::cli
