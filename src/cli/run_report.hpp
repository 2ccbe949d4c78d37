#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_check.hpp"

namespace truenorm::cli {

struct ReportedOutput {
  std::string name;
  tn_dtype dtype = TN_DTYPE_NONE;
  std::vector<int64_t> shape;
  uint64_t checksum = 0;
  std::string path;  // empty: not written
};

// Seconds of one call and of a copy of as many bytes, medians.
struct RunTiming {
  double call = 0;
  double copy = 0;
  size_t bytes = 0;  // what a call reads and writes
  int runs = 0;
};

// All that `truenorm run` tells.
struct RunReport {
  RunSettings settings;
  int64_t rows = 0;
  int64_t n = 0;
  std::vector<std::pair<std::string, std::string>> inputs;  // name and type
  std::string device;                                       // as on the command line
  std::string where;                                        // as Executor has it
  std::string isa;
  int32_t threads = 0;
  double seconds = 0;  // of the one call that gave the outputs; on a CUDA device, with the copies there and back
  std::vector<ReportedOutput> outputs;
  std::vector<CheckLine> checks;
  std::optional<RunTiming> timing;
};

void print_report(const RunReport& report);        // to the standard output, for a person
std::string report_json(const RunReport& report);  // ends with a newline

}  // namespace truenorm::cli
