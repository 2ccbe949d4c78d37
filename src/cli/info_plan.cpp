#include "cli/info_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "cli/cuda/device.hpp"
#include "cli/cuda_choice.hpp"
#include "cli/error.hpp"
#include "cli/options.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr int64_t kMostColumns = int64_t{1} << 30;  // the library's bound on a CUDA device
constexpr int64_t kMostMultiprocessors = 1024;
constexpr int64_t kLeastShared = 48 << 10;  // every device has that
constexpr int64_t kMostShared = 1 << 20;
constexpr int kLeastMajor = 8;  // the backend's oldest devices

struct NamedDevice {
  std::string name;
  cuda::Device device;
};

// Multiprocessors, compute capability, shared memory that a thread block may have.
const std::array<NamedDevice, 5> kPresets{{{"a100", {108, 8, 0, 166912}},
                                           {"h100", {132, 9, 0, 232448}},
                                           {"h200", {132, 9, 0, 232448}},
                                           {"b200", {148, 10, 0, 232448}},
                                           {"rtx5090", {170, 12, 0, 101376}}}};

std::string preset_names() {
  std::string names;
  for (const NamedDevice& preset : kPresets) names += (names.empty() ? "" : ", ") + preset.name;
  return names;
}

NamedDevice base_device(const std::string& text) {
  for (const NamedDevice& preset : kPresets) {
    if (preset.name == text) return preset;
  }
  const bool numbered = text.starts_with("cuda:") && text.size() > 5;
  if (text != "cuda" && !(numbered && text.find_first_not_of("0123456789", 5) == std::string::npos)) {
    user_error("--device does not know {}; with --plan it takes one of {}, cuda, cuda:1 and so on", printable(text),
               preset_names());
  }
  const Executor executor({text, "auto", 1});
  const CudaDevice there = chosen_cuda_device();
  return {there.name, {there.multiprocessors, there.major, there.minor, there.shared_bytes}};
}

void parse_capability(std::string_view text, cuda::Device& device) {
  const char* const end = text.data() + text.size();
  int major = 0, minor = 0;
  const auto [point, first] = std::from_chars(text.data(), end, major);
  if (first == std::errc() && point != end && *point == '.') {
    const auto [last, second] = std::from_chars(point + 1, end, minor);
    if (second == std::errc() && last == end && major >= kLeastMajor && major < 100 && minor >= 0 && minor < 10) {
      device.major = major;
      device.minor = minor;
      return;
    }
  }
  user_error("--capability takes a compute capability from {}.0 up, as in 9.0, and got {}", kLeastMajor,
             printable(text));
}

int64_t in_range(int64_t value, std::string_view option, int64_t least, int64_t most) {
  if (value < least || value > most) user_error("{} takes {} to {}, and got {}", option, least, most, value);
  return value;
}

NamedDevice device_of(const InfoPlanOptions& options) {
  NamedDevice out = base_device(options.device);
  if (options.multiprocessors) {
    out.device.multiprocessors =
        static_cast<int>(in_range(*options.multiprocessors, "--multiprocessors", 1, kMostMultiprocessors));
  }
  if (!options.capability.empty()) parse_capability(options.capability, out.device);
  if (options.shared_bytes) {
    out.device.shared_bytes =
        static_cast<size_t>(in_range(*options.shared_bytes, "--shared-bytes", kLeastShared, kMostShared));
  }
  return out;
}

BenchShape shape_of(const InfoPlanOptions& options) {
  BenchShape shape{};
  if (!options.shape.empty()) {
    if (options.m || options.n) user_error("--shape says what --m and --n would: give it or them");
    shape = parse_shape(options.shape, "--shape", kMostElements);
  } else {
    if (!options.m || !options.n) user_error("--plan needs --shape, or --m and --n");
    shape.m = in_range(*options.m, "--m", 1, kMostElements);
    shape.n = in_range(*options.n, "--n", 1, kMostColumns);
  }
  if (shape.n > kMostColumns)
    user_error("--shape takes rows of at most {} elements, and got {}", kMostColumns, shape.n);
  return shape;
}

PlannedCall call_of(const InfoPlanOptions& options) {
  PlannedCall call{};
  call.op = parse_op(options.op);
  call.direction = parse_direction(options.direction);
  call.shape = shape_of(options);
  call.dtype = parse_dtype(options.dtype, "--dtype");
  const auto other = [&](const std::string& text, std::string_view option) {
    return text.empty() ? call.dtype : parse_dtype(text, option);
  };
  call.residual_dtype = other(options.residual_dtype, "--residual-dtype");
  call.out_dtype = other(options.out_dtype, "--out-dtype");
  call.in_place = options.in_place;
  call.aligned = !options.unaligned;
  if (!options.residual_dtype.empty() && !call.op.add) {
    user_error("--residual-dtype is for add_rms_norm and add_layer_norm, and --op is {}", call.op.name);
  }
  if (call.in_place && call.direction == Direction::forward) {
    user_error("--in-place is for the backward, and --direction is forward");
  }
  if (call.in_place && call.out_dtype != call.dtype) {
    user_error("--in-place writes dx over dy, of one type: leave --out-dtype out");
  }
  return call;
}

// ---- What is printed: one function for each of the backend's structs. The text is made of the JSON.

Json fields(const cuda::ForwardPlan& plan) {
  if (plan.wide) return {{"wide", true}};
  return {{"wide", false},
          {"threads", plan.threads},
          {"chunks_per_thread", plan.chunks},
          {"lanes_per_row", 1 << plan.log_lanes},
          {"warps_per_row", plan.warps},
          {"rows_per_thread_block", plan.rows},
          {"turns", plan.turns},
          {"rows_in_registers", plan.in_registers},
          {"vectors_in_shared_memory", !plan.in_registers && !plan.direct},
          {"vectors_by_first_level_cache", plan.cached},
          {"shared_bytes", plan.shared_bytes}};
}

Json fields(const cuda::RowPlan& plan) {
  if (plan.wide) return {{"wide", true}};
  return {{"wide", false},
          {"threads", plan.threads},
          {"chunks_per_thread", plan.chunks},
          {"lanes_per_row", 1 << plan.shape.log_lanes},
          {"warps_per_row", plan.shape.warps},
          {"rows_per_thread_block", plan.shape.rows_per_cta}};
}

// Who has a strip at a time.
const char* team_name(const cuda::StripsPlan& plan) {
  if (plan.team == cuda::Team::kWarp) return "warp";
  if (plan.cluster() > 1) return "cluster";
  return plan.teams > 1 ? "part of a thread block" : "thread block";
}

Json fields(const cuda::StripsPlan& plan) {
  return {{"team", team_name(plan)},
          {"teams_per_thread_block", plan.teams},
          {"warps_per_team", plan.team_warps},
          {"strips_per_thread_block", plan.strips()},
          {"lanes_per_row", 1 << plan.log_lanes},
          {"threads", plan.threads()},
          {"chunks_per_thread", plan.chunks},
          {"rows_per_tile", plan.rows_per_tile},
          {"large_copies", plan.large_copies},
          {"columns_per_thread_block", plan.columns},
          {"groups", plan.groups},
          {"cluster", plan.cluster()},
          {"shared_bytes", plan.shared_bytes}};
}

Json fields(const cuda::SplitPlan& plan) {
  return {{"threads", plan.threads},
          {"row_blocks", plan.row_blocks},
          {"slabs", plan.slabs},
          {"chunks_per_slab", plan.chunks},
          {"columns_per_slab", plan.chunks * 8},
          {"slabs_of_one_gradient", plan.slabs_each},
          {"rows", fields(plan.rows)}};
}

Json fields(const cuda::BackwardPlan& plan) {
  if (plan.strips.fits) return fields(plan.strips);
  Json json = fields(plan.split);
  json["ordered"] = plan.ordered;
  return json;
}

Json fields(const CudaLaunch& launch) {
  return {{"thread_blocks", launch.blocks},
          {"bounded_by_residence", launch.resident},
          {"threads_per_block", launch.threads},
          {"cluster", launch.cluster},
          {"shared_bytes", launch.shared_bytes}};
}

Json fields(const PlannedCall& call) {
  Json json{{"op", call.op.name},
            {"direction", direction_name(call.direction)},
            {"m", call.shape.m},
            {"n", call.shape.n},
            {"dtype", tn_dtype_name(call.dtype)}};
  if (call.op.add) json["residual_dtype"] = tn_dtype_name(call.residual_dtype);
  json["out_dtype"] = tn_dtype_name(call.out_dtype);
  json["in_place"] = call.in_place;
  json["aligned"] = call.aligned;
  return json;
}

Json fields(const NamedDevice& device) {
  return {{"name", device.name},
          {"multiprocessors", device.device.multiprocessors},
          {"compute_capability", fmt::format("{}.{}", device.device.major, device.device.minor)},
          {"shared_bytes_per_block", device.device.shared_bytes}};
}

Json fields(const CudaChoice& choice) {
  constexpr std::array<const char*, 5> kKernels{"forward", "forward_wide", "backward_strips", "backward_split",
                                                "backward_split_wide"};
  Json plan = choice.forward ? fields(*choice.forward) : fields(*choice.backward);
  if (choice.kernel == CudaKernel::forward_wide || choice.kernel == CudaKernel::backward_split_wide) {
    plan["cached_tiles"] = choice.cached_tiles;
  }
  return {{"kernel", kKernels.at(static_cast<size_t>(choice.kernel))},
          {"kernel_dtype", tn_dtype_name(choice.kept)},
          {"whole_chunks", choice.whole},
          {"plan", plan},
          {"launch", fields(choice.launch)},
          {"workspace_bytes", choice.workspace_bytes},
          {"counter_bytes", choice.counter_bytes}};
}

void print_fields(const Json& json, int indent) {
  for (const auto& [key, value] : json.items()) {
    std::string label = std::string(static_cast<size_t>(indent), ' ') + key;
    std::replace(label.begin(), label.end(), '_', ' ');
    if (value.is_object()) {
      fmt::print("{}\n", label);
      print_fields(value, indent + 2);
      continue;
    }
    const std::string text = value.is_boolean()  ? (value.get<bool>() ? "yes" : "no")
                             : value.is_string() ? value.get<std::string>()
                                                 : value.dump();
    fmt::print("{:<28}  {}\n", label, text);
  }
}

}  // namespace

void add_info_plan_options(CLI::App& app, InfoPlanOptions& options) {
  app.add_flag("--plan", options.wanted, "Say instead which kernel CUDA would run for a call, and how; needs no GPU");
  // Not CLI11's needs(), which would be said again in each line of the help.
  auto all = std::make_shared<std::vector<const CLI::Option*>>();
  const auto ours = [&](CLI::Option* option) {
    all->push_back(option);
    return option->group("With --plan");
  };
  const auto word = [&](const char* name, auto& slot, const char* type, const std::string& what) {
    return ours(app.add_option(name, slot, what)->type_name(type));
  };
  word("--op", options.op, "OP", "rms_norm, add_rms_norm, layer_norm or add_layer_norm")->capture_default_str();
  word("--direction", options.direction, "DIR", "forward, backward, or frozen (backward without the weight's gradient)")
      ->capture_default_str();
  word("--shape", options.shape, "MxN", "Rows and columns, as in 8192x4096");
  word("--m", options.m, "M", "Rows, together with --n");
  word("--n", options.n, "N", "Columns, together with --m");
  word("--dtype", options.dtype, "TYPE", "f32, f16 or bf16, of matrices and vectors")->capture_default_str();
  word("--residual-dtype", options.residual_dtype, "TYPE", "The residual stream's type (residual, s, ds)");
  word("--out-dtype", options.out_dtype, "TYPE", "The type of y or dx");
  ours(app.add_flag("--in-place", options.in_place, "Backward: dx is written over dy"));
  ours(app.add_flag("--unaligned", options.unaligned, "Matrices and vectors do not start at multiples of 16 bytes"));
  word("--device", options.device, "DEVICE",
       fmt::format("{}; cuda, cuda:1 and so on: one that is here", preset_names()))
      ->capture_default_str();
  word("--multiprocessors", options.multiprocessors, "COUNT", "Another number than the device's");
  word("--capability", options.capability, "X.Y", "Another compute capability than the device's");
  word("--shared-bytes", options.shared_bytes, "BYTES", "Of a thread block, another number than the device's");
  app.parse_complete_callback([all, &options] {
    for (const CLI::Option* option : *all) {
      if (option->count() > 0 && !options.wanted) user_error("{} goes with --plan", option->get_name());
    }
  });
}

void print_plan(const InfoPlanOptions& options, bool json) {
  const PlannedCall call = call_of(options);
  const NamedDevice device = device_of(options);
  Json all{{"call", fields(call)}, {"device", fields(device)}};
  all.update(fields(choose_kernel(call, device.device)));
  json ? fmt::print("{}\n", all.dump(2)) : print_fields(all, 0);
}

}  // namespace truenorm::cli
