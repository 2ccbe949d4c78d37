#include "cli/info.hpp"

#include <fmt/format.h>
#include <truenorm/truenorm.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

struct Info {
  std::vector<std::string> backends{"cpu"};
  std::vector<std::string> isas;
  std::vector<std::string> unavailable_isas;  // built in, but not on this CPU
  std::string auto_isa = tn_isa_name(widest_isa());
  int32_t cuda_devices = tn_device_count(TN_CUDA);
  int32_t threads = hardware_threads();

  Info() {
    if (tn_has_backend(TN_CUDA)) backends.emplace_back("cuda");
    for (const tn_isa isa : {TN_ISA_SCALAR, TN_ISA_AVX2, TN_ISA_AVX512, TN_ISA_NEON}) {
      if (tn_isa_built(isa)) (tn_isa_available(isa) ? isas : unavailable_isas).emplace_back(tn_isa_name(isa));
    }
  }
};

void print_json(const Info& info) {
  const nlohmann::ordered_json json{{"version", tn_version()},
                                    {"order_version", tn_order_version()},
                                    {"order_frozen", tn_order_version() != 0},
                                    {"backends", info.backends},
                                    {"instruction_sets", info.isas},
                                    {"instruction_sets_not_on_this_cpu", info.unavailable_isas},
                                    {"auto_instruction_set", info.auto_isa},
                                    {"devices", {{"cpu", tn_device_count(TN_CPU)}, {"cuda", info.cuda_devices}}},
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
  fmt::print("devices           cpu, {} cuda\n", info.cuda_devices);
  fmt::print("hardware threads  {}\n", info.threads);
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("info", "Say what this build is and what this machine can run of it");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "Print JSON");
  sub->footer(
      "Examples:\n"
      "  truenorm info\n"
      "  truenorm info --json");
  sub->callback([json] {
    const Info info;
    *json ? print_json(info) : print_text(info);
  });
}

}  // namespace truenorm::cli
