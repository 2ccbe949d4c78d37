#pragma once

#include <truenorm/truenorm.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace truenorm::cli {

// `truenorm run`'s command line as typed; empty strings are options not given.
struct RunOptions {
  std::string op;
  bool backward = false;
  std::string x, residual, weight, bias, dy, ds, mean, rstd;
  std::string rows;
  std::string dtype, residual_dtype, weight_dtype, out_dtype;
  std::string rounding = "once";
  std::optional<double> eps;
  double offset = 0;
  bool allow_nonfinite = false;
  ExecOptions exec;
  std::string output;               // -o
  std::vector<std::string> single;  // --out NAME=FILE
  bool check = false;
  bool time = false;
  std::string json;
};

void add_run_options(CLI::App& app, RunOptions& options);

// What the operation is, checked as far as that is possible without a file.
struct RunSettings {
  tn_op op = TN_RMS_NORM;
  bool backward = false;
  tn_rounding rounding = TN_ROUND_ONCE;
  float eps = 0;
  float offset = 0;
  tn_dtype dtype = TN_DTYPE_NONE;  // NONE, here and below: as the inputs have it
  tn_dtype residual_dtype = TN_DTYPE_NONE;
  tn_dtype weight_dtype = TN_DTYPE_NONE;
  tn_dtype out_dtype = TN_DTYPE_NONE;
};

// Throws UserError for values out of range and for options that do not belong together.
RunSettings parse_settings(const RunOptions& options);

}  // namespace truenorm::cli
