// The options that several subcommands share, and the library context they describe.
#pragma once

#include <truenorm/truenorm.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace truenorm::cli {

// Each takes an option's text and throws UserError naming `option`, the text and what is allowed.
tn_dtype parse_dtype(std::string_view text, std::string_view option);        // f32, f16, bf16
tn_isa parse_isa(std::string_view text, std::string_view option);            // auto, scalar, avx2, avx512, neon
tn_rounding parse_rounding(std::string_view text, std::string_view option);  // once, gemma (the same), llama

struct Place {
  tn_device_type device = TN_CPU;
  int32_t index = 0;
};
Place parse_device(std::string_view text, std::string_view option);  // cpu, cuda (the first one), cuda:1, ...

std::string_view op_name(tn_op op);                    // "rms_norm", "layer_norm"
std::string_view rounding_name(tn_rounding rounding);  // "once", "llama"

// The instruction set that TN_ISA_AUTO stands for on this machine.
tn_isa widest_isa();

// The threads this process may run on at once; at least 1.
int32_t hardware_threads();

// Where to run, as given on the command line.
struct ExecOptions {
  std::string device = "cpu";
  std::string isa = "auto";
  int32_t threads = 0;  // 0: hardware_threads()
};

// Adds --device, --isa and --threads.
void add_exec_options(CLI::App& app, ExecOptions& options);

inline constexpr const char* kDeviceHelp = "cpu, cuda, or cuda:1 and so on for another than the first";

// Owns the thread pool behind a tn_exec, and chooses the CUDA device for the calling thread. Throws UserError where the
// machine or the build lacks what was asked for.
class Executor {
 public:
  explicit Executor(const ExecOptions& options);

  const tn_exec& exec() const { return exec_; }
  bool cuda() const { return exec_.device == TN_CUDA; }
  // The CPU's; beside a CUDA device these are for what the command itself does.
  int32_t threads() const { return tn_threads_count(pool_.get()); }
  tn_isa isa() const { return isa_; }  // resolved: never TN_ISA_AUTO
  // "avx512, 2 threads" or "NVIDIA H200".
  std::string where() const;

 private:
  struct DestroyThreads {
    void operator()(tn_threads* threads) const { tn_threads_destroy(threads); }
  };
  std::unique_ptr<tn_threads, DestroyThreads> pool_;
  tn_exec exec_{};
  tn_isa isa_ = TN_ISA_SCALAR;
  std::string cuda_name_;
};

// Throws UserError for a status that the caller's arguments caused, std::runtime_error for any other than TN_OK.
void require_ok(tn_status status, const tn_error& error);

}  // namespace truenorm::cli
