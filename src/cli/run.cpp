#include "cli/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/elements.hpp"
#include "cli/error.hpp"
#include "cli/run_call.hpp"
#include "cli/run_check.hpp"
#include "cli/run_files.hpp"
#include "cli/run_inputs.hpp"
#include "cli/run_options.hpp"
#include "cli/run_report.hpp"
#include "cli/run_timing.hpp"

namespace truenorm::cli {
namespace {

RunReport describe(const RunOptions& options, const RunSettings& settings, const RunInputs& inputs,
                   const Executor& executor) {
  RunReport report;
  report.settings = settings;
  report.rows = inputs.m;
  report.n = inputs.n;
  for (const auto& [name, tensor] :
       {std::pair("x", &inputs.x), std::pair("residual", &inputs.residual), std::pair("weight", &inputs.weight),
        std::pair("bias", &inputs.bias), std::pair("dy", &inputs.dy), std::pair("ds", &inputs.ds)}) {
    if (*tensor) report.inputs.emplace_back(name, tn_dtype_name(tensor->dtype()));
  }
  report.device = options.exec.device;
  report.where = executor.where();
  report.isa = tn_isa_name(executor.isa());
  report.threads = executor.threads();
  return report;
}

void run(const RunOptions& options) {
  const RunSettings settings = parse_settings(options);
  const Executor executor(options.exec);
  const RunFiles files(options, settings, input_paths(options));
  RunInputs inputs = load_inputs(options, settings);
  RunReport report = describe(options, settings, inputs, executor);
  RunCall call(settings, inputs, files.outputs(), executor);
  const std::vector<OutputTensor> outputs = call.outputs();
  files.check_types(outputs);

  const auto start = std::chrono::steady_clock::now();
  call.run();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const OutputTensor& output : outputs) {
    report.outputs.push_back(
        {output.name, output.dtype, output.shape, checksum(output.bytes), files.path_of(output.name)});
  }
  if (options.check) report.checks = check_outputs(call, executor);
  if (options.time) report.timing = time_call(call, executor);

  const bool passed =
      std::all_of(report.checks.begin(), report.checks.end(), [](const CheckLine& line) { return line.passed; });
  const std::string json = report_json(report);
  if (passed) files.write(outputs, json);
  if (options.json == "-") {
    fmt::print("{}", json);
  } else {
    print_report(report);
  }
  if (!passed) throw CheckFailed("an output breaks its accuracy bar, so nothing was written");
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("run", "Run one operation, forward or backward, on tensors from files");
  auto options = std::make_shared<RunOptions>();
  add_run_options(*sub, *options);
  sub->callback([options] { run(*options); });
}

}  // namespace truenorm::cli
