#include <fmt/format.h>
#include <truenorm/truenorm.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>

#include "cli/bench.hpp"
#include "cli/error.hpp"
#include "cli/info.hpp"
#include "cli/run.hpp"
#include "cli/text.hpp"
#include "cli/verify.hpp"

namespace {

constexpr int kExitFailed = 1;  // a bar was broken, and nothing else
constexpr int kExitError = 2;   // the command line or a file is wrong, or the machine failed

int fail(int code, std::string_view message) {
  fmt::print(stderr, "truenorm: {}\n", truenorm::cli::one_line(message));
  return code;
}

// Two of CLI11's messages say what its code tried; a user wants what was got and what is needed.
std::string in_our_words(const std::string& message) {
  constexpr std::string_view kConvert = "Could not convert: ", kEquals = " = ",
                             kMany = ": At Most 1 required but received ";
  const size_t equals = message.find(kEquals), many = message.find(kMany);
  if (message.starts_with(kConvert) && equals != std::string::npos) {
    const std::string option = message.substr(kConvert.size(), equals - kConvert.size());
    const std::string value = message.substr(equals + kEquals.size());
    return fmt::format("{}: got {}, and it takes numbers", option, truenorm::cli::printable(value));
  }
  if (many != std::string::npos) {
    return fmt::format("{} was given {} times, and it takes one value", message.substr(0, many),
                       message.substr(many + kMany.size()));
  }
  return message;
}

// What is wrong with the command line, and where its help is.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = in_our_words(error.what());
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) return fmt::format("{} (see 'truenorm {} --help')", message, chosen.front()->get_name());
  const auto extras = app.remaining();
  if (extras.empty()) return fmt::format("{} (see 'truenorm --help')", message);
  return fmt::format("there is no subcommand or option {} (see 'truenorm --help')",
                     truenorm::cli::printable(extras.front()));
}

int run_command(int argc, char** argv) {
  CLI::App app{"RMSNorm, residual-add + RMSNorm and LayerNorm, forward and backward, with the same bits everywhere.",
               "truenorm"};
  const int32_t order = tn_order_version();
  app.set_version_flag("--version", fmt::format("truenorm {} (order version {}{})", tn_version(), order,
                                                order == 0 ? ", not frozen" : ""));
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  truenorm info\n"
      "  truenorm run rms_norm --x x.npy --weight w.npy -o y.safetensors\n"
      "  truenorm verify --help\n"
      "  truenorm bench --help\n"
      "Exit codes: 0 done, 1 a check failed, 2 anything else is wrong: the command line, a file, the machine.");
  truenorm::cli::add_info(app);
  truenorm::cli::add_run(app);
  truenorm::cli::add_verify(app);
  truenorm::cli::add_bench(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(kExitError, parse_message(app, error));
  } catch (const truenorm::cli::UserError& error) {
    return fail(kExitError, error.what());
  } catch (const truenorm::cli::CheckFailed& error) {
    return fail(kExitFailed, error.what());
  }
  if (std::fflush(stdout) != 0 || !std::cout.flush()) return fail(kExitError, "cannot write to the standard output");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("truenorm: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "truenorm: %s\n", error.what());
  }
  return kExitError;
}
