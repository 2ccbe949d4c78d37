#include "cli/bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_cuda.hpp"
#include "cli/bench_group.hpp"
#include "cli/bench_plan.hpp"
#include "cli/bench_report.hpp"
#include "cli/error.hpp"
#include "cli/io/atomic_file.hpp"
#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

// One line on standard error: renewed on a terminal, so that the table stays whole.
class Progress {
 public:
  explicit Progress(size_t groups) : groups_(groups) {}

  void begin(const BenchShape& shape, tn_dtype dtype, int32_t threads) {
    ++group_;
    if (groups_ < 2) return;
    const std::string on = threads == 0 ? "" : fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s");
    fmt::print(stderr, "bench: {} of {}: {}x{} {}{}{}", group_, groups_, shape.m, shape.n, tn_dtype_name(dtype), on,
               terminal_ ? "" : "\n");
    std::fflush(stderr);
  }
  void end() const {
    if (terminal_ && groups_ > 1) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  size_t groups_;
  size_t group_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
};

// Before minutes are spent: what the library would refuse is refused now.
void check_executors(const BenchPlan& plan) {
  for (const std::string& isa : plan.isas) {
    for (const int32_t threads : plan.threads) {
      ExecOptions options;
      options.isa = isa;
      options.threads = threads;
      const Executor executor(options);
    }
  }
}

void run_bench(const BenchOptions& options) {
  const BenchPlan plan = plan_bench(options);
  check_executors(plan);
  std::optional<Executor> on_device;
  if (plan.place.device == TN_CUDA) on_device.emplace(ExecOptions{options.device, "auto", 1});
  std::optional<AtomicFile> file;
  if (!options.json.empty() && options.json != "-") file.emplace(options.json);
  const bool table = options.json != "-";
  const tn_device_type device = plan.place.device;
  const Machine machine = this_machine(device);
  if (table) {
    fmt::print("{}{}, {} threads\n{}{}", machine.cuda ? machine.cuda->name + "; " : "", machine.cpu, machine.threads,
               layout_line(plan), table_heading(device));
  }

  Progress progress(plan.groups());
  BenchMemory memory(device);
  std::vector<BenchGroup> groups;
  for (const BenchShape& shape : plan.shapes) {
    for (const tn_dtype dtype : plan.dtypes) {
      memory.prepare(shape, dtype, plan.rotate_bytes, plan.layout);
      for (const int32_t threads : plan.threads) {
        progress.begin(shape, dtype, threads);
        groups.push_back(on_device ? run_cuda_group(plan, on_device->exec(), memory)
                                   : run_group(plan, memory, threads));
        progress.end();
        if (!table) continue;
        fmt::print("{}", table_rows(groups.back()));
        std::fflush(stdout);
      }
    }
  }
  if (table) fmt::print("{}", table_legend(device));
  if (options.json.empty()) return;
  const std::string json = bench_json(plan, options.device, machine, groups).dump(1) + "\n";
  if (!file) {
    fmt::print("{}", json);
    return;
  }
  file->write(json);
  file->flush();
  file->commit();
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("bench", "Time every operation beside a plain copy of the same bytes");
  auto options = std::make_shared<BenchOptions>();
  const auto list = [&](const char* name, auto& slot, const char* type, const char* what) {
    sub->add_option(name, slot, what)->delimiter(',')->type_name(type);
  };
  list("--op", options->ops, "OP,...", "Only these of rms_norm, add_rms_norm, layer_norm, add_layer_norm");
  list("--direction", options->directions, "DIR,...",
       "Only these of forward, backward, frozen (backward without the weight's gradient)");
  list("--dtype", options->dtypes, "TYPE,...", "Only these of f32, bf16, f16");
  sub->add_option("--weight-dtype", options->weight_dtype,
                  "Type of the weight, the bias and their gradients (default: that of the matrices)")
      ->type_name("TYPE");
  list("--shape", options->shapes, "MxN,...",
       "Rows and columns (default: 8192x4096,2048x768,131072x128,1x4096; cuda: 13 shapes)");
  list("--m", options->m, "M,...", "Rows, together with --n");
  list("--n", options->n, "N,...", "Columns, together with --m");
  list("--threads", options->threads, "COUNT,...", "CPU threads, a number or all (default: 1,all)");
  list("--isa", options->isas, "ISA,...", "Instruction sets of auto, scalar, avx2, avx512, neon (default: auto)");
  sub->add_option("--device", options->device, kDeviceHelp)->type_name("DEVICE")->capture_default_str();
  sub->add_option("--rounds", options->rounds, "Samples of each (default: 7)")->type_name("COUNT");
  sub->add_option("--sample-ms", options->sample_ms, "A sample repeats its call for this long (default: 20)")
      ->type_name("MS");
  sub->add_option(
         "--rotate-mb", options->rotate_mb,
         "Megabytes that pass before memory is met again (default: 400, or twice the last-level cache; cuda: 800)")
      ->type_name("MB");
  sub->add_option("--row-gap", options->row_gap,
                  "Elements that every matrix leaves out between its rows, which lie N + this apart (default: 0)")
      ->type_name("ELEMENTS");
  sub->add_flag("--in-place", options->in_place,
                "Forward: y is written over x, and with the add s over the residual; backward: dx over dy. "
                "Weights are -1 and biases 0, so that values stay finite; N from 128 up");
  sub->add_flag("--programmatic", options->programmatic,
                "cuda: each call may begin while the one before it is ending (programmatic dependent launch)");
  sub->add_flag("--quick", options->quick, "A few seconds: two shapes, f32 and bf16, all threads, 3 short rounds");
  sub->add_option("--json", options->json,
                  "Also write everything as JSON; - for standard output, in place of the table")
      ->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  truenorm bench --quick\n"
      "  truenorm bench --shape 8192x4096 --dtype bf16 --threads 1,2 --json bench.json\n"
      "  truenorm bench --op layer_norm --direction forward --isa scalar,avx2,avx512\n"
      "  truenorm bench --op rms_norm --shape 8192x4096 --dtype bf16 --weight-dtype f32 --row-gap 8 --in-place\n"
      "  truenorm bench --device cuda --dtype bf16");
  sub->callback([options] { run_bench(*options); });
}

}  // namespace truenorm::cli
