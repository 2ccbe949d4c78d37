#include "cli/run_options.hpp"

#include <cmath>
#include <limits>
#include <string_view>

#include "cli/error.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  RMSNorm of an array, everything it gives in one file:\n"
    "    truenorm run rms_norm --x x.npy --weight w.npy -o out.safetensors\n"
    "  A model's embeddings through its LayerNorm, checked against the FP64 oracle:\n"
    "    truenorm run layer_norm --x model.safetensors:embeddings.word_embeddings.weight \\\n"
    "      --weight model.safetensors:embeddings.LayerNorm.weight \\\n"
    "      --bias model.safetensors:embeddings.LayerNorm.bias --rows 0:1000 --check -o y.safetensors\n"
    "  Gemma's offset, in BF16, with a residual:\n"
    "    truenorm run rms_norm --x x.npy --residual r.npy --weight w.npy --offset 1 --dtype bf16 -o out.safetensors\n"
    "  Backward, with a made-up dy, timed beside a copy of the same bytes:\n"
    "    truenorm run rms_norm --backward --x x.npy --weight w.npy --dy random:1 --time --out dx=dx.npy";

float parse_float(double value, std::string_view option) {
  if (!std::isfinite(value) || std::fabs(value) > std::numeric_limits<float>::max()) {
    user_error("{} takes a finite FP32 number, and got {}", option, value);
  }
  return static_cast<float>(value);
}

void forbid(const std::string& given, std::string_view option, std::string_view why) {
  if (!given.empty()) user_error("{} {}", option, why);
}

void check_combination(const RunOptions& options, tn_op op) {
  if (!options.backward) {
    for (const auto& [given, option] : {std::pair(&options.dy, "--dy"), std::pair(&options.ds, "--ds"),
                                        std::pair(&options.mean, "--mean"), std::pair(&options.rstd, "--rstd")}) {
      forbid(*given, option, "is an input of the backward: add --backward");
    }
    return;
  }
  if (options.dy.empty() && options.ds.empty()) user_error("--backward needs --dy or --ds");
  if (op == TN_RMS_NORM) forbid(options.mean, "--mean", "is not an input of rms_norm");
  if (!options.mean.empty() && options.rstd.empty()) user_error("--mean needs --rstd beside it");
  if (!options.rstd.empty()) {
    if (op == TN_LAYER_NORM && options.mean.empty()) user_error("--rstd needs --mean beside it for layer_norm");
    forbid(options.residual, "--residual", "serves to compute s, mean and rstd: leave it out, or leave --rstd out");
  }
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  const auto tensor = [&](const char* name, std::string& slot, const char* what) {
    return app.add_option(name, slot, what)->type_name("FILE[:NAME]")->group("Tensors");
  };
  const auto word = [&](const char* name, std::string& slot, const char* type, const char* what) {
    return app.add_option(name, slot, what)->type_name(type);
  };
  app.add_option("OP", options.op, "rms_norm or layer_norm")->required()->type_name("");
  app.add_flag("--backward", options.backward, "The gradients, instead of the forward");

  tensor("--x,--s", options.x, "The input; for the backward, what was normalised")->required();
  tensor("--residual", options.residual, "Added to x first");
  tensor("--weight", options.weight, "Its shape is the last dimensions of x, which are normalised together");
  tensor("--bias", options.bias, "As weight");
  tensor("--dy", options.dy, "Backward: the gradient of y");
  tensor("--ds", options.ds, "Backward: the gradient arriving at s");
  tensor("--mean", options.mean, "Backward: from the forward (layer_norm)");
  tensor("--rstd", options.rstd, "Backward: from the forward; without it, the forward is run first");
  word("--rows", options.rows, "A:B", "Take rows A to B - 1 of x, residual, dy and ds");

  app.add_option("--eps", options.eps, "Added to the mean square or variance (default: 1e-6, layer_norm 1e-5)")
      ->type_name("NUMBER");
  app.add_option("--offset", options.offset, "Added to the weight in FP32 (Gemma: 1)")->type_name("NUMBER");
  word("--rounding", options.rounding, "MODE", "once (or gemma, the same): one rounding, at the store; llama")
      ->capture_default_str();
  word("--dtype", options.dtype, "TYPE", "Convert the inputs to f32, f16 or bf16; the outputs follow");
  word("--residual-dtype", options.residual_dtype, "TYPE", "The residual stream's type (residual, s, ds)");
  word("--weight-dtype", options.weight_dtype, "TYPE", "Convert weight and bias");
  word("--out-dtype", options.out_dtype, "TYPE", "The type of y or dx");
  app.add_flag("--allow-nonfinite", options.allow_nonfinite, "Accept NaN and infinity in the inputs");
  add_exec_options(app, options.exec);

  auto* all = word("-o,--output", options.output, "FILE", "Write all outputs, as .safetensors");
  app.add_option("--out", options.single,
                 "Write one output, as .npy or .safetensors; may be repeated. Forward: y, s, mean, rstd; "
                 "backward: dx, dresidual, dweight, dbias")
      ->type_name("NAME=FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->excludes(all);
  app.add_flag("--check", options.check, "Compare with the FP64 oracle; exit code 1 where a bar is broken");
  app.add_flag("--time", options.time, "Repeat, and print the median time beside a copy of the same bytes");
  word("--json", options.json, "FILE", "Write the summary as JSON; - is the standard output");
  app.footer(
      std::string("A tensor is FILE.npy, or FILE.safetensors:NAME (without NAME where the file has one tensor).\n"
                  "residual, weight, bias, dy and ds may also be random:SEED (standard normal) or ones.\n") +
      kExamples);
}

RunSettings parse_settings(const RunOptions& options) {
  RunSettings settings;
  if (options.op == "rms_norm") {
    settings.op = TN_RMS_NORM;
  } else if (options.op == "layer_norm") {
    settings.op = TN_LAYER_NORM;
  } else {
    user_error("run does not know the operation {}; it takes rms_norm or layer_norm", printable(options.op));
  }
  settings.backward = options.backward;
  settings.rounding = parse_rounding(options.rounding, "--rounding");
  if (settings.op == TN_LAYER_NORM && settings.rounding == TN_ROUND_LLAMA) {
    user_error("--rounding llama is defined for rms_norm only");
  }
  settings.eps = parse_float(options.eps.value_or(settings.op == TN_RMS_NORM ? 1e-6 : 1e-5), "--eps");
  if (settings.eps < 0) user_error("--eps takes numbers from 0 up, and got {}", settings.eps);
  settings.offset = parse_float(options.offset, "--offset");
  const auto dtype = [](const std::string& text, std::string_view option) {
    return text.empty() ? tn_dtype{TN_DTYPE_NONE} : parse_dtype(text, option);
  };
  settings.dtype = dtype(options.dtype, "--dtype");
  settings.residual_dtype = dtype(options.residual_dtype, "--residual-dtype");
  settings.weight_dtype = dtype(options.weight_dtype, "--weight-dtype");
  settings.out_dtype = dtype(options.out_dtype, "--out-dtype");
  check_combination(options, settings.op);
  return settings;
}

}  // namespace truenorm::cli
