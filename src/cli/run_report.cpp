#include "cli/run_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMilli = 1e3;

std::string_view direction(const RunSettings& settings) { return settings.backward ? "backward" : "forward"; }

std::string hex(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

double gigabytes_per_second(const RunTiming& timing, double seconds) {
  return static_cast<double>(timing.bytes) / seconds * 1e-9;
}

void print_check(const CheckLine& line) {
  const char* verdict = line.passed ? "ok" : "BROKEN";
  if (line.column_sums) {
    fmt::print("  {:<9} {:<4}  largest error {:.3f} of its bar  {}\n", line.output, tn_dtype_name(line.dtype),
               line.worst_bars, verdict);
    return;
  }
  const std::string ulp = line.dtype == TN_F32 ? "" : fmt::format("worst {} ulp, ", line.worst_ulp);
  fmt::print("  {:<9} {:<4}  {:8.4f} % correctly rounded, {}{:.2f} FP32 units, relative L2 {:.3e} (ideal {:.3e})  {}\n",
             line.output, tn_dtype_name(line.dtype), 100 * line.correct_share, ulp, line.worst_units, line.relative_l2,
             line.ideal_relative_l2, verdict);
}

ordered_json json_of(const CheckLine& line) {
  ordered_json json{{"output", line.output}, {"dtype", tn_dtype_name(line.dtype)}, {"passed", line.passed}};
  if (line.column_sums) {
    json["worst_error_in_bars"] = line.worst_bars;
  } else {
    json["correct_share"] = line.correct_share;
    if (line.dtype != TN_F32) json["worst_ulp"] = line.worst_ulp;
    json["worst_fp32_units"] = line.worst_units;
    json["relative_l2"] = line.relative_l2;
    json["ideal_relative_l2"] = line.ideal_relative_l2;
  }
  return json;
}

}  // namespace

void print_report(const RunReport& report) {
  const RunSettings& settings = report.settings;
  fmt::print("{} {}: {} rows of {}", op_name(settings.op), direction(settings), report.rows, report.n);
  for (const auto& [name, type] : report.inputs) fmt::print(", {} {}", name, type);
  fmt::print("\nrounding {}, eps {}, offset {}; {}; {:.3f} ms{}\n", rounding_name(settings.rounding), settings.eps,
             settings.offset, report.where, report.seconds * kMilli,
             report.device == "cpu" ? "" : " with the copies to the device and back");
  for (const ReportedOutput& output : report.outputs) {
    fmt::print("  {:<9} {:<4}  {}  fnv1a {}{}\n", output.name, tn_dtype_name(output.dtype), shape_text(output.shape),
               hex(output.checksum), output.path.empty() ? "" : "  -> " + output.path);
  }
  if (!report.checks.empty()) fmt::print("against the FP64 oracle:\n");
  for (const CheckLine& line : report.checks) print_check(line);
  if (report.timing) {
    const RunTiming& timing = *report.timing;
    fmt::print(
        "median of {}: {:.3f} ms ({:.1f} GB/s); a copy of the same bytes: {:.3f} ms ({:.1f} GB/s); ratio {:.2f}\n",
        timing.runs, timing.call * kMilli, gigabytes_per_second(timing, timing.call), timing.copy * kMilli,
        gigabytes_per_second(timing, timing.copy), timing.call / timing.copy);
  }
}

std::string report_json(const RunReport& report) {
  const RunSettings& settings = report.settings;
  ordered_json json{{"version", tn_version()},    {"order_version", tn_order_version()},
                    {"op", op_name(settings.op)}, {"direction", direction(settings)},
                    {"rows", report.rows},        {"n", report.n}};
  for (const auto& [name, type] : report.inputs) json["inputs"][name] = type;
  json["rounding"] = rounding_name(settings.rounding);
  json["eps"] = settings.eps;
  json["offset"] = settings.offset;
  json["device"] = report.device;
  if (report.device == "cpu") {
    json["instruction_set"] = report.isa;
    json["threads"] = report.threads;
  } else {
    json["device_name"] = report.where;
  }
  json["seconds"] = report.seconds;
  json["outputs"] = ordered_json::array();
  for (const ReportedOutput& output : report.outputs) {
    ordered_json item{{"name", output.name},
                      {"dtype", tn_dtype_name(output.dtype)},
                      {"shape", output.shape},
                      {"fnv1a64", hex(output.checksum)}};
    if (!output.path.empty()) item["file"] = output.path;
    json["outputs"].push_back(std::move(item));
  }
  for (const CheckLine& line : report.checks) json["check"].push_back(json_of(line));
  if (report.timing) {
    const RunTiming& timing = *report.timing;
    json["timing"] = {{"runs", timing.runs},
                      {"bytes", timing.bytes},
                      {"call_seconds", timing.call},
                      {"copy_seconds", timing.copy},
                      {"ratio", timing.call / timing.copy}};
  }
  // A path need not be UTF-8; what is not is replaced.
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace truenorm::cli
