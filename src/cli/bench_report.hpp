// What `truenorm bench` prints and writes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/bench_group.hpp"
#include "cli/bench_plan.hpp"
#include "cli/cuda/device.hpp"

namespace truenorm::cli {

struct Machine {
  std::string cpu;   // the model's name, "unknown" where the system does not tell
  std::string arch;  // "x86_64"
  int32_t threads;   // that this process may run on at once
  std::optional<CudaDevice> cuda{};
};
Machine this_machine(tn_device_type device = TN_CPU);  // CUDA: with the device that was chosen

// What sets these calls apart from those with no option of layout or weights, a line; empty where nothing does.
std::string layout_line(const BenchPlan& plan);

// The table: a heading, the rows of one group (with a line about the noise), and the explanation at the end.
std::string table_heading(tn_device_type device = TN_CPU);
std::string table_rows(const BenchGroup& group);
std::string table_legend(tn_device_type device = TN_CPU);

nlohmann::ordered_json bench_json(const BenchPlan& plan, const std::string& device, const Machine& machine,
                                  const std::vector<BenchGroup>& groups);

}  // namespace truenorm::cli
