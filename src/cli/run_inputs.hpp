#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>
#include <vector>

#include "cli/host_tensor.hpp"
#include "cli/run_options.hpp"

namespace truenorm::cli {

// The tensors of one `truenorm run`, in memory, in the types they are computed with; absent where not given.
struct RunInputs {
  std::vector<int64_t> leading;     // x's dimensions before the normalised ones: rows
  std::vector<int64_t> normalized;  // the dimensions normalised together
  int64_t m = 0;                    // rows: product of `leading`
  int64_t n = 0;                    // product of `normalized`
  HostTensor x, residual, weight, bias, dy, ds, mean, rstd;

  std::vector<int64_t> matrix_shape() const;  // leading, then normalized
  tn_dtype s_dtype() const { return residual ? residual.dtype() : x.dtype(); }
};

// Loads what `options` names. Throws UserError for a shape that does not fit, a value that is not finite (unless
// allowed), and whatever the files' readers refuse.
RunInputs load_inputs(const RunOptions& options, const RunSettings& settings);

// The files named by `options`, for outputs to keep clear of.
std::vector<std::string> input_paths(const RunOptions& options);

}  // namespace truenorm::cli
