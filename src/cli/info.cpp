#include "cli/info.hpp"

#include <fmt/format.h>
#include <truenorm/truenorm.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cuda/device.hpp"
#include "cli/info_plan.hpp"
#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

struct Info {
  std::vector<std::string> backends{"cpu"};
  std::vector<std::string> isas;
  std::vector<std::string> unavailable_isas;  // built in, but not on this CPU
  std::string auto_isa = tn_isa_name(widest_isa());
  std::vector<CudaDevice> cuda = cuda_devices();
  int32_t threads = hardware_threads();

  Info() {
    if (tn_has_backend(TN_CUDA)) backends.emplace_back("cuda");
    for (const tn_isa isa : {TN_ISA_SCALAR, TN_ISA_AVX2, TN_ISA_AVX512, TN_ISA_NEON}) {
      if (tn_isa_built(isa)) (tn_isa_available(isa) ? isas : unavailable_isas).emplace_back(tn_isa_name(isa));
    }
  }
};

std::string capability(const CudaDevice& device) { return fmt::format("{}.{}", device.major, device.minor); }

void print_json(const Info& info) {
  nlohmann::ordered_json cuda = nlohmann::ordered_json::array();
  for (const CudaDevice& device : info.cuda) {
    cuda.push_back({{"name", device.name},
                    {"compute_capability", capability(device)},
                    {"multiprocessors", device.multiprocessors},
                    {"memory_bytes", device.memory_bytes},
                    {"l2_bytes", device.l2_bytes}});
  }
  const nlohmann::ordered_json json{{"version", tn_version()},
                                    {"order_version", tn_order_version()},
                                    {"order_frozen", tn_order_version() != 0},
                                    {"backends", info.backends},
                                    {"instruction_sets", info.isas},
                                    {"instruction_sets_not_on_this_cpu", info.unavailable_isas},
                                    {"auto_instruction_set", info.auto_isa},
                                    {"devices", {{"cpu", tn_device_count(TN_CPU)}, {"cuda", info.cuda.size()}}},
                                    {"cuda_devices", cuda},
                                    {"hardware_threads", info.threads}};
  fmt::print("{}\n", json.dump(2));
}

void print_text(const Info& info) {
  const int32_t order = tn_order_version();
  fmt::print("version           {}\n", tn_version());
  fmt::print("order version     {}{}\n", order, order == 0 ? " (not frozen: bits may change between versions)" : "");
  fmt::print("backends          {}\n", fmt::join(info.backends, ", "));
  fmt::print("instruction sets  {} (auto takes {})\n", fmt::join(info.isas, ", "), info.auto_isa);
  if (!info.unavailable_isas.empty()) {
    fmt::print("not on this CPU   {} (built in)\n", fmt::join(info.unavailable_isas, ", "));
  }
  fmt::print("devices           cpu, {} cuda\n", info.cuda.size());
  for (size_t i = 0; i < info.cuda.size(); ++i) {
    const CudaDevice& device = info.cuda[i];
    fmt::print("{:<16}  {}, compute capability {}, {} GB\n", fmt::format("cuda:{}", i), device.name, capability(device),
               device.memory_bytes / 1'000'000'000);
  }
  fmt::print("hardware threads  {}\n", info.threads);
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("info", "Say what this build is and what this machine can run of it");
  auto json = std::make_shared<bool>(false);
  auto plan = std::make_shared<InfoPlanOptions>();
  sub->add_flag("--json", *json, "Print JSON");
  add_info_plan_options(*sub, *plan);
  sub->footer(
      "Examples:\n"
      "  truenorm info\n"
      "  truenorm info --json\n"
      "  truenorm info --plan --op add_rms_norm --direction backward --shape 8192x4096\n"
      "  truenorm info --plan --op layer_norm --m 1 --n 4096 --dtype f32 --device b200 --json");
  sub->callback([json, plan] {
    if (plan->wanted) return print_plan(*plan, *json);
    const Info info;
    *json ? print_json(info) : print_text(info);
  });
}

}  // namespace truenorm::cli
