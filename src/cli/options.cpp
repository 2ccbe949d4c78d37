#include "cli/options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "cli/cuda/device.hpp"
#include "cli/error.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr int32_t kMaxThreads = 1024;

using Choice = std::pair<std::string_view, int32_t>;

int32_t choose(std::string_view text, std::string_view option, std::span<const Choice> choices) {
  std::string allowed;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  user_error("{} does not know {}; it takes one of {}", option, printable(text), allowed);
}

// The device's name.
std::string choose_device(int32_t index, std::string_view isa) {
  if (!tn_has_backend(TN_CUDA)) user_error("--device cuda: this build has no CUDA backend");
  const int32_t count = tn_device_count(TN_CUDA);
  if (count == 0) user_error("--device cuda: no CUDA device can be used");
  if (index >= count) user_error("--device cuda:{}: there are {} CUDA devices, counted from 0", index, count);
  if (isa != "auto") user_error("--isa {} is for the CPU, and --device is cuda", isa);
  choose_cuda_device(index);
  return chosen_cuda_device().name;
}

}  // namespace

tn_dtype parse_dtype(std::string_view text, std::string_view option) {
  static constexpr std::array<Choice, 3> kChoices{{{"f32", TN_F32}, {"f16", TN_F16}, {"bf16", TN_BF16}}};
  return choose(text, option, kChoices);
}

tn_isa parse_isa(std::string_view text, std::string_view option) {
  static constexpr std::array<Choice, 5> kChoices{{{"auto", TN_ISA_AUTO},
                                                   {"scalar", TN_ISA_SCALAR},
                                                   {"avx2", TN_ISA_AVX2},
                                                   {"avx512", TN_ISA_AVX512},
                                                   {"neon", TN_ISA_NEON}}};
  return choose(text, option, kChoices);
}

Place parse_device(std::string_view text, std::string_view option) {
  constexpr std::string_view kNumbered = "cuda:";
  if (text == "cpu") return {TN_CPU, 0};
  if (text == "cuda") return {TN_CUDA, 0};
  if (text.starts_with(kNumbered)) {
    const std::string_view number = text.substr(kNumbered.size());
    int32_t index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc() && end == number.data() + number.size() && index >= 0) return {TN_CUDA, index};
  }
  user_error("{} does not know {}; it takes one of cpu, cuda, cuda:1 and so on", option, printable(text));
}

tn_rounding parse_rounding(std::string_view text, std::string_view option) {
  static constexpr std::array<Choice, 3> kChoices{
      {{"once", TN_ROUND_ONCE}, {"gemma", TN_ROUND_ONCE}, {"llama", TN_ROUND_LLAMA}}};
  return choose(text, option, kChoices);
}

std::string_view op_name(tn_op op) { return op == TN_RMS_NORM ? "rms_norm" : "layer_norm"; }

std::string_view rounding_name(tn_rounding rounding) { return rounding == TN_ROUND_LLAMA ? "llama" : "once"; }

tn_isa widest_isa() {
  for (const tn_isa isa : {TN_ISA_AVX512, TN_ISA_AVX2, TN_ISA_NEON}) {
    if (tn_isa_available(isa)) return isa;
  }
  return TN_ISA_SCALAR;
}

int32_t hardware_threads() {
  return static_cast<int32_t>(std::clamp(std::thread::hardware_concurrency(), 1U, static_cast<unsigned>(kMaxThreads)));
}

void add_exec_options(CLI::App& app, ExecOptions& options) {
  app.add_option("--device", options.device, kDeviceHelp)->type_name("DEVICE")->capture_default_str();
  app.add_option("--isa", options.isa, "CPU instruction set: auto, scalar, avx2, avx512 or neon; all give equal bits")
      ->type_name("ISA")
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 fmt::format("CPU threads, 1 to {}; changes no bit (default: all of this machine's, {})", kMaxThreads,
                             hardware_threads()))
      ->type_name("COUNT")
      ->check([](const std::string& text) {
        return CLI::Range(1, kMaxThreads)(text).empty()
                   ? std::string()
                   : fmt::format("got {}, and it takes 1 to {}", printable(text), kMaxThreads);
      });
}

Executor::Executor(const ExecOptions& options) {
  exec_.struct_size = sizeof(exec_);
  const Place place = parse_device(options.device, "--device");
  exec_.device = place.device;
  exec_.device_index = place.index;
  exec_.isa = parse_isa(options.isa, "--isa");
  if (exec_.isa != TN_ISA_AUTO && !tn_isa_available(exec_.isa)) {
    user_error("--isa {}: this {}; 'truenorm info' lists what there is", tn_isa_name(exec_.isa),
               tn_isa_built(exec_.isa) ? "machine does not have it" : "build has no code for it");
  }
  isa_ = exec_.isa == TN_ISA_AUTO ? widest_isa() : exec_.isa;
  tn_threads* pool = nullptr;
  tn_error error{};
  require_ok(tn_threads_create(options.threads > 0 ? options.threads : hardware_threads(), &pool, &error), error);
  pool_.reset(pool);
  if (cuda()) {
    cuda_name_ = choose_device(place.index, options.isa);
  } else {
    exec_.threads = pool;
  }
}

std::string Executor::where() const {
  if (cuda()) return cuda_name_;
  return fmt::format("{}, {} thread{}", tn_isa_name(isa_), threads(), threads() == 1 ? "" : "s");
}

void require_ok(tn_status status, const tn_error& error) {
  switch (status) {
    case TN_OK: return;
    case TN_INVALID_ARGUMENT:
    case TN_UNSUPPORTED:
    case TN_NO_DEVICE: throw UserError(error.message);
    default: throw std::runtime_error(fmt::format("{}: {}", tn_status_name(status), error.message));
  }
}

}  // namespace truenorm::cli
