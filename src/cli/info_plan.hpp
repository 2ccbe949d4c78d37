// `truenorm info --plan`: the kernel that the CUDA backend would choose for a call, and its tuning. Needs no device.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace truenorm::cli {

// As typed; what is empty was not given.
struct InfoPlanOptions {
  bool wanted = false;  // --plan
  std::string op = "rms_norm";
  std::string direction = "forward";
  std::string shape;
  std::optional<int64_t> m, n;
  std::string dtype = "bf16";
  std::string residual_dtype, out_dtype;  // as --dtype
  bool in_place = false, unaligned = false;
  std::string device = "h200";
  std::optional<int64_t> multiprocessors, shared_bytes;  // these three: as the device has it
  std::string capability;
};

void add_info_plan_options(CLI::App& app, InfoPlanOptions& options);

// Throws UserError naming the option that is wrong.
void print_plan(const InfoPlanOptions& options, bool json);

}  // namespace truenorm::cli
