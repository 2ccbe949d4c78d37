#include "cli/verify.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/error.hpp"
#include "cli/io/atomic_file.hpp"
#include "cli/options.hpp"
#include "cli/text.hpp"
#include "cli/verify_case.hpp"
#include "cli/verify_plan.hpp"
#include "cli/verify_report.hpp"

namespace truenorm::cli {
namespace {

struct VerifyOptions {
  ExecOptions exec;
  std::vector<std::string> ops;
  std::vector<int64_t> n;
  std::vector<int64_t> m;
  bool full = false;
  uint64_t seed = 1;
  std::string json;  // empty: none; "-": standard output, the table then goes to standard error
};

// Larger matrices are refused up front rather than by running out of memory half way.
constexpr int64_t kMaxElements = int64_t{1} << 31;

PlanOptions plan_options(const VerifyOptions& options) {
  PlanOptions plan{options.full, options.n, options.m, {}};
  for (const std::string& op : options.ops) {
    const auto* const found = std::find(kVerifyOps.begin(), kVerifyOps.end(), op);
    if (found == kVerifyOps.end()) {
      user_error("--op does not know {}; it takes some of {}", printable(op), fmt::join(kVerifyOps, ", "));
    }
    plan.ops.push_back(*found);
  }
  if (plan.ops.empty()) plan.ops.assign(kVerifyOps.begin(), kVerifyOps.end());
  for (const int64_t n : options.n) {
    if (n < 1 || n > kMaxElements) user_error("--n takes numbers from 1 to {}, and got {}", kMaxElements, n);
  }
  for (const int64_t m : options.m) {
    if (m < 0 || m > kMaxElements) user_error("--m takes numbers from 0 to {}, and got {}", kMaxElements, m);
  }
  return plan;
}

std::vector<VerifyCase> plan_cases(const VerifyOptions& options) {
  std::vector<VerifyCase> cases = make_plan(plan_options(options));
  for (const VerifyCase& c : cases) {
    if (c.elements() > kMaxElements) user_error("--n {} with --m {}: more than {} elements", c.n, c.m, kMaxElements);
  }
  return cases;
}

// CLI11 reads -1 as 2^64 - 1.
std::string check_seed(const std::string& text) {
  return text.starts_with('-') ? fmt::format("got {}, and it takes 0 to 2^64 - 1", printable(text)) : "";
}

// Says on standard error how far a long run is: a line that renews itself on a terminal, else one every ten seconds.
class Progress {
 public:
  explicit Progress(const std::vector<VerifyCase>& cases) : cases_(cases.size()) {
    for (const VerifyCase& c : cases) total_ += cost(c);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void finished(const VerifyCase& c) {
    done_ += cost(c);
    ++finished_;
    const Clock::time_point now = Clock::now();
    if (now - shown_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10000))) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double share = static_cast<double>(done_) / static_cast<double>(total_);
    fmt::print(stderr, "{}verify: {:3.0f} %, case {} of {}, {:.0f} s, about {:.0f} s to go{}", terminal_ ? "\r" : "",
               100 * share, finished_, cases_, seconds, seconds * (1 - share) / share, terminal_ ? "\x1b[K" : "\n");
    std::fflush(stderr);
    dirty_ = terminal_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // In elements; a case costs something even when it has none.
  static int64_t cost(const VerifyCase& c) { return c.elements() + 4096; }

  void clear() {
    if (dirty_) fmt::print(stderr, "\r\x1b[K");
  }

  size_t cases_;
  size_t finished_ = 0;
  int64_t total_ = 0;
  int64_t done_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool dirty_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

void run_verify(const VerifyOptions& options) {
  const std::vector<VerifyCase> cases = plan_cases(options);
  const Executor executor(options.exec);
  std::optional<AtomicFile> file;
  if (!options.json.empty() && options.json != "-") file.emplace(options.json);

  const auto start = std::chrono::steady_clock::now();
  VerifyReport report;
  {
    Progress progress(cases);
    for (const VerifyCase& c : cases) {
      report.add(c, run_case(c, options.seed, executor));
      progress.finished(c);
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const Coverage coverage = coverage_of(cases);
  std::FILE* const stream = options.json == "-" ? stderr : stdout;
  fmt::print(stream, "{}\n{}", report.table(), coverage_text(coverage));
  fmt::print(stream, "{} outputs compared with FP64 in {:.1f} s: {}, seed {}.\n", report.outputs(), seconds,
             executor.where(), options.seed);
  fmt::print(stream, "{}\n", report.passed() ? "All bars met." : "NOT all bars met.");

  if (!options.json.empty()) {
    nlohmann::ordered_json json{
        {"version", tn_version()}, {"order_version", tn_order_version()}, {"device", options.exec.device}};
    if (executor.cuda()) {
      json["device_name"] = executor.where();
    } else {
      json["isa"] = tn_isa_name(executor.isa());
    }
    json["threads"] = executor.threads();
    json["seed"] = options.seed;
    json["set"] = options.full ? "full" : "quick";
    json["seconds"] = seconds;
    json["coverage"] = coverage_json(coverage);
    json.update(report.json());
    const std::string text = json.dump(1) + "\n";
    if (file) {
      file->write(text);
      file->flush();
      file->commit();
    } else {
      fmt::print("{}", text);
    }
  }
  if (!report.passed()) throw CheckFailed("verify: not every bar is met; the lines above say which");
}

}  // namespace

void add_verify(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("verify", "Check every operation, type and shape against an FP64 oracle");
  auto options = std::make_shared<VerifyOptions>();
  sub->add_flag("--full", options->full,
                "All sizes, each with all type mixes (minutes, 2 GB) instead of the quick set (seconds)");
  sub->add_option("--op", options->ops, fmt::format("Only these operations, of {}", fmt::join(kVerifyOps, ", ")))
      ->delimiter(',')
      ->type_name("OP,...");
  sub->add_option("--n", options->n, "These row lengths instead of the set's own")->delimiter(',')->type_name("N,...");
  sub->add_option("--m", options->m, "These numbers of rows instead of the set's own")
      ->delimiter(',')
      ->type_name("M,...");
  sub->add_option("--seed", options->seed, "Seed of the random data")->capture_default_str()->check(check_seed);
  sub->add_option("--json", options->json, "Also write the results as JSON; - for standard output")->type_name("FILE");
  add_exec_options(*sub, options->exec);
  sub->footer(
      "Examples:\n"
      "  truenorm verify\n"
      "  truenorm verify --full --json accuracy.json\n"
      "  truenorm verify --op layer_norm,add_layer_norm --n 768,1024 --m 512 --isa scalar\n"
      "  truenorm verify --device cuda\n"
      "Exit code 1: a bar is not met.");
  sub->callback([options] { run_verify(*options); });
}

}  // namespace truenorm::cli
