#include <fmt/format.h>
#include <truenorm/truenorm.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
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

constexpr int kExitFailed = 1;  // a bar was broken, or the machine failed
constexpr int kExitUser = 2;    // the command line or a file is wrong

int fail(int code, std::string_view message) {
  fmt::print(stderr, "truenorm: {}\n", truenorm::cli::one_line(message));
  return code;
}

// What is wrong with the command line, and where its help is.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) return fmt::format("{} (see 'truenorm {} --help')", error.what(), chosen.front()->get_name());
  const auto extras = app.remaining();
  if (extras.empty()) return fmt::format("{} (see 'truenorm --help')", error.what());
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
      "Exit codes: 0 done, 1 a check failed, 2 the command line or a file is wrong.");
  truenorm::cli::add_info(app);
  truenorm::cli::add_run(app);
  truenorm::cli::add_verify(app);
  truenorm::cli::add_bench(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(kExitUser, parse_message(app, error));
  } catch (const truenorm::cli::UserError& error) {
    return fail(kExitUser, error.what());
  } catch (const truenorm::cli::CheckFailed& error) {
    return fail(kExitFailed, error.what());
  }
  if (std::fflush(stdout) != 0) return fail(kExitFailed, "cannot write to the standard output");
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
  return kExitFailed;
}
