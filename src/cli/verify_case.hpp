// Runs one case of `truenorm verify`: random data, the library's forward and backward, and the oracle beside them.
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>

#include "cli/options.hpp"
#include "cli/verify_plan.hpp"
#include "reference/measures.hpp"

namespace truenorm::cli {

struct CaseResult {
  reference::Accuracy y;
  reference::Accuracy statistics;  // mean and rstd
  int64_t wrong_sums = 0;          // elements of residual_out that are not the oracle's s
  reference::Accuracy dx;
  reference::Accuracy dresidual;
  reference::ColumnAccuracy columns;  // dweight and dbias, asked for in FP32
  int64_t wrong_roundings = 0;        // 16-bit dweight or dbias that are not the FP32 ones rounded once
};

// The case and `seed` decide the data. Uses the executor's threads for the data and the oracle. Throws as require_ok
// does where the library refuses.
CaseResult run_case(const VerifyCase& c, uint64_t seed, const Executor& executor);

}  // namespace truenorm::cli
