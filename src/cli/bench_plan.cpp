#include "cli/bench_plan.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "cli/error.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

constexpr int64_t kRotateMegabytes = 400;
constexpr int64_t kCudaRotateMegabytes = 800;
constexpr int64_t kMaxRotateMegabytes = int64_t{1} << 20;
constexpr double kMaxSampleMs = 60'000;
constexpr int kMaxRounds = 1000;
constexpr int64_t kMaxRowGap = int64_t{1} << 20;
constexpr int64_t kLeastColumnsInPlace = 128;

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

int32_t parse_threads(const std::string& text) {
  constexpr int64_t kMax = 1024;
  if (text == "all") return hardware_threads();
  const auto count = parse_count(text);
  if (!count || *count > kMax)
    user_error("--threads takes 'all' or numbers from 1 to {}, and got {}", kMax, printable(text));
  return static_cast<int32_t>(*count);
}

void check_elements(const BenchShape& shape, std::string_view option, int64_t most) {
  if (shape.m > most / shape.n) user_error("{}: {} x {} has more than {} elements", option, shape.m, shape.n, most);
}

// Few rows and many, short and long, and what models have between.
std::vector<BenchShape> cuda_shapes(bool quick) {
  if (quick) return {{1, 4096}, {128, 4096}, {8192, 4096}, {8192, 768}};
  return {{8192, 128},  {131072, 128}, {8192, 768},  {32768, 1024}, {1, 4096},    {128, 4096},  {2048, 4096},
          {8192, 4096}, {128, 8192},   {2048, 8192}, {1024, 12288}, {128, 18432}, {4096, 18432}};
}

std::vector<BenchShape> shapes_of(const BenchOptions& options, tn_device_type device) {
  std::vector<BenchShape> shapes;
  for (const std::string& text : options.shapes) shapes.push_back(parse_shape(text, "--shape"));
  if (options.m.empty() != options.n.empty()) user_error("--m and --n go together");
  for (const int64_t m : options.m) {
    for (const int64_t n : options.n) {
      if (m < 1 || n < 1) user_error("--m and --n take numbers from 1 up, and got {}", std::min(m, n));
      shapes.push_back({m, n});
      check_elements(shapes.back(), "--m, --n", int64_t{1} << 31);
    }
  }
  if (!shapes.empty()) return shapes;
  if (device == TN_CUDA) return cuda_shapes(options.quick);
  if (options.quick) return {{2048, 768}, {1024, 4096}};
  return {{8192, 4096}, {2048, 768}, {131072, 128}, {1, 4096}};
}

// Keeps the first of equal values, in order.
template <class T>
std::vector<T> distinct(const std::vector<T>& values) {
  std::vector<T> out;
  for (const T& value : values) {
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
  return out;
}

template <class T, class Parse>
std::vector<T> parse_all(const std::vector<std::string>& given, const std::vector<std::string>& standard,
                         const Parse& parse) {
  std::vector<T> out;
  for (const std::string& text : distinct(given.empty() ? standard : given)) out.push_back(parse(text));
  return out;
}

int64_t last_level_cache_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  return std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
#else
  return 0;
#endif
}

void plan_cpu(const BenchOptions& options, BenchPlan& plan) {
  const std::vector<std::string> threads =
      options.quick ? std::vector<std::string>{"all"} : std::vector<std::string>{"1", "all"};
  plan.threads = distinct(parse_all<int32_t>(options.threads, threads, parse_threads));
  plan.isas = distinct(options.isas.empty() ? std::vector<std::string>{"auto"} : options.isas);
  for (const std::string& isa : plan.isas) parse_isa(isa, "--isa");
}

// dx over dy, call after call, keeps dy but for its part along the row s: that part is multiplied by 1 - mean(s^2),
// which has to stay between -1 and 1. Of 128 normal numbers or more it does.
void check_in_place(const std::vector<BenchShape>& shapes) {
  for (const BenchShape& shape : shapes) {
    if (shape.n >= kLeastColumnsInPlace) continue;
    user_error(
        "--in-place takes rows of {} columns or more, whose values stay finite however often they are replaced, "
        "and got {}x{}",
        kLeastColumnsInPlace, shape.m, shape.n);
  }
}

// Rather than have them change nothing.
void check_cpu_options(const BenchOptions& options) {
  const auto forbid = [](bool given, std::string_view option) {
    if (given) user_error("{} is for the CPU, and --device is cuda", option);
  };
  forbid(!options.threads.empty(), "--threads");
  forbid(!options.isas.empty(), "--isa");
  forbid(options.sample_ms.has_value(), "--sample-ms");
}

}  // namespace

const char* direction_name(Direction direction) {
  static constexpr std::array<const char*, 3> kNames{"forward", "backward", "frozen"};
  return kNames.at(static_cast<size_t>(direction));
}

Traffic traffic(const BenchOp& op, Direction direction) {
  if (direction == Direction::forward) return op.add ? Traffic{2, 2} : Traffic{1, 1};  // x, residual; y, s
  return op.add ? Traffic{3, 1} : Traffic{2, 1};                                       // dy, s, ds; dx
}

BenchOp parse_op(std::string_view text) {
  std::string allowed;
  for (const BenchOp& op : kBenchOps) {
    if (op.name == text) return op;
    allowed += (allowed.empty() ? "" : ", ") + std::string(op.name);
  }
  user_error("--op does not know {}; it takes one of {}", printable(text), allowed);
}

Direction parse_direction(std::string_view text) {
  for (const Direction direction : {Direction::forward, Direction::backward, Direction::frozen}) {
    if (text == direction_name(direction)) return direction;
  }
  user_error("--direction does not know {}; it takes one of forward, backward, frozen", printable(text));
}

BenchShape parse_shape(std::string_view text, std::string_view option, int64_t most) {
  const size_t x = text.find('x');
  if (x != std::string_view::npos) {
    const auto m = parse_count(text.substr(0, x));
    const auto n = parse_count(text.substr(x + 1));
    if (m && n) {
      check_elements({*m, *n}, option, most);
      return {*m, *n};
    }
  }
  user_error("{} takes rows x columns, as in 8192x4096, and got {}", option, printable(text));
}

BenchPlan plan_bench(const BenchOptions& options) {
  BenchPlan plan;
  plan.place = parse_device(options.device, "--device");
  const bool cuda = plan.place.device == TN_CUDA;
  std::vector<std::string> ops;
  ops.reserve(std::size(kBenchOps));
  for (const BenchOp& op : kBenchOps) ops.emplace_back(op.name);
  plan.ops = parse_all<BenchOp>(options.ops, ops, parse_op);
  plan.directions = parse_all<Direction>(options.directions, {"forward", "backward", "frozen"}, parse_direction);
  const std::vector<std::string> dtypes =
      options.quick ? std::vector<std::string>{"f32", "bf16"} : std::vector<std::string>{"f32", "bf16", "f16"};
  plan.dtypes =
      parse_all<tn_dtype>(options.dtypes, dtypes, [](const auto& text) { return parse_dtype(text, "--dtype"); });
  if (!options.weight_dtype.empty()) plan.weight_dtype = parse_dtype(options.weight_dtype, "--weight-dtype");
  plan.shapes = distinct(shapes_of(options, plan.place.device));
  if (options.row_gap < 0 || options.row_gap > kMaxRowGap)
    user_error("--row-gap takes 0 to {} elements, and got {}", kMaxRowGap, options.row_gap);
  if (options.in_place) check_in_place(plan.shapes);
  plan.layout = {options.row_gap, options.in_place};
  if (cuda) {
    check_cpu_options(options);
    plan.threads = {0};
  } else {
    if (options.programmatic) user_error("--programmatic is for --device cuda");
    plan_cpu(options, plan);
  }
  plan.programmatic = options.programmatic;

  plan.rounds = options.rounds.value_or(options.quick ? 3 : 7);
  if (plan.rounds < 1 || plan.rounds > kMaxRounds)
    user_error("--rounds takes 1 to {}, and got {}", kMaxRounds, plan.rounds);
  const double ms = options.sample_ms.value_or(options.quick ? 4 : 20);
  if (!(ms > 0 && ms <= kMaxSampleMs))
    user_error("--sample-ms takes numbers above 0, up to {}, and got {}", kMaxSampleMs, ms);
  plan.sample_seconds = cuda ? 0 : ms * 1e-3;
  int64_t rotate =
      cuda ? kCudaRotateMegabytes * 1'000'000 : std::max(kRotateMegabytes * 1'000'000, 2 * last_level_cache_bytes());
  if (options.rotate_mb) {
    if (*options.rotate_mb < 1 || *options.rotate_mb > kMaxRotateMegabytes) {
      user_error("--rotate-mb takes 1 to {}, and got {}", kMaxRotateMegabytes, *options.rotate_mb);
    }
    rotate = *options.rotate_mb * 1'000'000;
  }
  plan.rotate_bytes = static_cast<size_t>(rotate);
  return plan;
}

}  // namespace truenorm::cli
