#include "cli/bench_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMicro = 1e6;

// Four significant digits, never an exponent.
std::string microseconds(double seconds) {
  const double us = seconds * kMicro;
  return fmt::format("{:.{}f}", us, us < 10 ? 3 : (us < 100 ? 2 : (us < 1000 ? 1 : 0)));
}

std::string size_text(size_t bytes) {
  if (bytes == 0) return "-";
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  return bytes < 10'000'000 ? fmt::format("{} KB", bytes / 1000) : fmt::format("{} MB", bytes / 1'000'000);
}

std::string shape_name(const BenchShape& shape) { return fmt::format("{}x{}", shape.m, shape.n); }

double gigabytes_per_second(const OpResult& result) {
  return static_cast<double>(result.bytes) / result.seconds.median * 1e-9;
}

double cold_ratio(const OpResult& result) { return result.cold->median / result.cold_floor->median; }

ordered_json json_of(const Summary& seconds) {
  return {{"median_us", seconds.median * kMicro}, {"min_us", seconds.min * kMicro}, {"max_us", seconds.max * kMicro}};
}

ordered_json json_of(const FloorResult& copy) {
  ordered_json json{{"reads", copy.traffic.reads}, {"writes", copy.traffic.writes}, {"way", copy.way}};
  json.update(json_of(copy.seconds));
  if (copy.cold) json["cold"] = json_of(*copy.cold);
  return json;
}

ordered_json json_of(const OpResult& result) {
  ordered_json json{{"op", result.op.name}, {"direction", direction_name(result.direction)}};
  if (!result.isa.empty()) json["isa"] = result.isa;
  json.update(json_of(result.seconds));
  json["samples_us"] = ordered_json::array();
  for (const double seconds : result.samples) json["samples_us"].push_back(seconds * kMicro);
  json["calls_per_sample"] = result.calls;
  json["bytes"] = result.bytes;
  json["gb_per_s"] = gigabytes_per_second(result);
  json["workspace_bytes"] = result.workspace_bytes;
  json["floor"] = json_of(result.floor);
  json["ratio"] = result.ratio();
  if (result.cold) {
    json["cold"] = json_of(*result.cold);
    json["cold_floor"] = json_of(*result.cold_floor);
    json["cold_ratio"] = cold_ratio(result);
  }
  return json;
}

ordered_json json_of(const BenchPlan& plan, const BenchGroup& group) {
  ordered_json json{{"m", group.shape.m}, {"n", group.shape.n}, {"dtype", tn_dtype_name(group.dtype)}};
  json["weight_dtype"] = tn_dtype_name(plan.weights_beside(group.dtype));
  json["row_gap"] = plan.layout.row_gap;
  json["in_place"] = plan.layout.in_place;
  if (group.threads > 0) json["threads"] = group.threads;
  json["buffer_sets"] = group.sets;
  json["noise"] = group.noise;
  json["copies"] = ordered_json::array();
  for (const FloorResult& copy : group.copies) json["copies"].push_back(json_of(copy));
  json["results"] = ordered_json::array();
  for (const OpResult& result : group.results) json["results"].push_back(json_of(result));
  return json;
}

std::string range_text(const Summary& seconds) { return microseconds(seconds.min) + ".." + microseconds(seconds.max); }

std::string cpu_row(const BenchGroup& group, const OpResult& result) {
  return fmt::format("{:<15} {:<9} {:>12} {:<5} {:>3} {:<7} {:>9} {:>6.1f} {:>9} {:>6.2f}  {:<17} {}\n", result.op.name,
                     direction_name(result.direction), shape_name(group.shape), tn_dtype_name(group.dtype),
                     group.threads, result.isa, microseconds(result.seconds.median), gigabytes_per_second(result),
                     microseconds(result.floor.seconds.median), result.ratio(), range_text(result.seconds),
                     size_text(result.workspace_bytes));
}

std::string cuda_row(const BenchGroup& group, const OpResult& result) {
  return fmt::format("{:<15} {:<9} {:>12} {:<5} {:>8} {:>6.0f} {:>8} {:>6.3f}  {:<15} {:>8} {:>8} {:>6.2f}  {}\n",
                     result.op.name, direction_name(result.direction), shape_name(group.shape),
                     tn_dtype_name(group.dtype), microseconds(result.seconds.median), gigabytes_per_second(result),
                     microseconds(result.floor.seconds.median), result.ratio(), range_text(result.seconds),
                     microseconds(result.cold->median), microseconds(result.cold_floor->median), cold_ratio(result),
                     size_text(result.workspace_bytes));
}

}  // namespace

Machine this_machine(tn_device_type device) {
  Machine machine{"unknown", "unknown", hardware_threads()};
  if (device == TN_CUDA) machine.cuda = chosen_cuda_device();
  utsname names{};
  if (uname(&names) == 0) machine.arch = names.machine;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      machine.cpu = line.substr(colon + 2);
      break;
    }
  }
  return machine;
}

std::string layout_line(const BenchPlan& plan) {
  std::vector<std::string> parts;
  if (plan.weight_dtype != TN_DTYPE_NONE)
    parts.push_back(fmt::format("weights in {}", tn_dtype_name(plan.weight_dtype)));
  if (plan.layout.row_gap > 0) {
    const char* const elements = plan.layout.row_gap == 1 ? "element" : "elements";
    parts.push_back(fmt::format("{} {} between rows", plan.layout.row_gap, elements));
  }
  if (plan.layout.in_place) parts.emplace_back("in place: y over x, s over the residual, dx over dy");
  return parts.empty() ? "" : fmt::format("{}\n", fmt::join(parts, "; "));
}

std::string table_heading(tn_device_type device) {
  if (device == TN_CUDA) {
    return fmt::format("{:<15} {:<9} {:>12} {:<5} {:>8} {:>6} {:>8} {:>6}  {:<15} {:>8} {:>8} {:>6}  {}\n", "operation",
                       "direction", "shape", "type", "us", "GB/s", "floor us", "ratio", "us min..max", "cold us",
                       "floor us", "ratio", "scratch");
  }
  return fmt::format("{:<15} {:<9} {:>12} {:<5} {:>3} {:<7} {:>9} {:>6} {:>9} {:>6}  {:<17} {}\n", "operation",
                     "direction", "shape", "type", "thr", "isa", "us", "GB/s", "floor us", "ratio", "us min..max",
                     "scratch");
}

std::string table_rows(const BenchGroup& group) {
  std::string text;
  for (const OpResult& result : group.results) {
    text += result.cold ? cuda_row(group, result) : cpu_row(group, result);
  }
  const OpResult& first = group.results.front();
  text += fmt::format("  noise: {} {} against itself {:.3f}; copies:", first.op.name, direction_name(first.direction),
                      group.noise);
  std::string separator = " ";
  for (const FloorResult& copy : group.copies) {
    if (copy.way != fastest_copy(group.copies, copy.traffic).way) continue;
    text += fmt::format("{}{}+{} {}", separator, copy.traffic.reads, copy.traffic.writes, copy.way);
    separator = ", ";
  }
  return text + "\n\n";
}

std::string table_legend(tn_device_type device) {
  if (device == TN_CUDA) {
    return "us      time of the device, median of the rounds: graphs of many calls are replayed, each call on other\n"
           "        memory that no cache holds any more; min..max over the rounds\n"
           "floor   the fastest of plain copy kernels reading and writing as many matrices (2+1: two read, one\n"
           "        written), in graphs and rounds of the same kind; ratio = us / floor us\n"
           "cold    single launches outside of graphs, each after twice the L2 cache was copied; with a floor so "
           "timed\n"
           "noise   the first operation over itself, entered twice: differences below it mean nothing\n"
           "frozen  backward without the weight's gradient; scratch: memory the library asked for beside the outputs\n";
  }
  return "us      median of the rounds; min..max over the rounds; each sample meets memory that no cache holds any "
         "more\n"
         "floor   the fastest of plain copies reading and writing as many matrices (2+1: two read, one written) on as\n"
         "        many threads, timed in the same rounds; ratio = us / floor us\n"
         "noise   the first operation over itself, entered twice: differences below it mean nothing\n"
         "frozen  backward without the weight's gradient; scratch: memory the library asked for beside the outputs\n";
}

ordered_json bench_json(const BenchPlan& plan, const std::string& device, const Machine& machine,
                        const std::vector<BenchGroup>& groups) {
  ordered_json json{{"version", tn_version()},
                    {"order_version", tn_order_version()},
                    {"device", device},
                    {"machine", {{"cpu", machine.cpu}, {"arch", machine.arch}, {"threads", machine.threads}}},
                    {"rounds", plan.rounds}};
  if (machine.cuda) {
    json["machine"]["cuda"] = {{"name", machine.cuda->name},
                               {"compute_capability", fmt::format("{}.{}", machine.cuda->major, machine.cuda->minor)},
                               {"multiprocessors", machine.cuda->multiprocessors},
                               {"memory_bytes", machine.cuda->memory_bytes},
                               {"l2_bytes", machine.cuda->l2_bytes}};
    json["programmatic"] = plan.programmatic;
  } else {
    json["sample_ms"] = plan.sample_seconds * 1e3;
  }
  json["rotate_bytes"] = plan.rotate_bytes;
  json["groups"] = ordered_json::array();
  for (const BenchGroup& group : groups) json["groups"].push_back(json_of(plan, group));
  return json;
}

}  // namespace truenorm::cli
