#include "cli/verify_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

LineVerdict judge_line(const LineKey& key, const Line& line) {
  LineVerdict verdict;
  verdict.output = reference::judge(key.dtype, line.output);
  if (key.kind == CaseKind::kMean) {
    // FP32 cannot place s - mean within a step of these rows' types, only within FP32 units of the mean.
    verdict.output.share = verdict.output.l2 = true;
    verdict.output.share_applies = false;
  }
  verdict.statistics = reference::statistics_passed(line.statistics);
  verdict.columns = line.columns.passed();
  verdict.exact = line.wrong_sums == 0 && line.wrong_roundings == 0;
  return verdict;
}

std::string types_text(const LineKey& key) {
  switch (key.kind) {
    case CaseKind::kMixed: return fmt::format("mixed>{}", tn_dtype_name(key.dtype));
    case CaseKind::kMean: return fmt::format("{} mean>0", tn_dtype_name(key.dtype));
    default: return tn_dtype_name(key.dtype);
  }
}

std::string kind_name(CaseKind kind) {
  return kind == CaseKind::kUniform ? "uniform" : (kind == CaseKind::kMixed ? "mixed" : "mean");
}

std::string line_name(const LineKey& key) {
  return fmt::format("{} {} {} {}", verify_op_name(key.op, key.add), rounding_name(key.rounding),
                     key.backward ? "backward" : "forward", types_text(key));
}

std::string percent(double share) {
  // Rounded down, so that only a perfect share reads 100.
  return fmt::format("{:.4f}", std::floor(share * 1e6) / 1e4);
}

constexpr std::string_view kRowFormat = "{:<15}{:<6}{:<9}{:<11}{:>12}{:>10}{:>4}{:>6}{:>11}{:>11}{:>6}{:>7}  {}\n";

std::string row_text(const LineKey& key, const Line& line) {
  const bool narrow = key.dtype != TN_F32;
  const reference::Accuracy& out = line.output;
  const double small = key.backward ? line.columns.worst : line.statistics.worst_units;
  return fmt::format(
      kRowFormat, verify_op_name(key.op, key.add), rounding_name(key.rounding), key.backward ? "backward" : "forward",
      types_text(key), out.elements, percent(out.correct_share()), narrow ? fmt::format("{}", out.worst_ulp) : "-",
      fmt::format("{:.2f}", out.worst_units), fmt::format("{:.3e}", out.relative_l2()),
      fmt::format("{:.3e}", out.ideal_relative_l2()), key.backward ? "-" : fmt::format("{:.2f}", small),
      key.backward ? fmt::format("{:.3f}", small) : "-", judge_line(key, line).passed() ? "pass" : "FAIL");
}

constexpr std::string_view kLegend =
    "types     of every tensor; mixed>T: several types, outputs of type T; mean>0: rows whose mean is 1 to 2000 times\n"
    "          their spread, where rounding the mean to FP32 moves all of s - mean: units, stats and dW/bar have bars\n"
    "correct%  outputs equal to the correctly rounded FP64 result; bar: bf16 {:.2f}, f16 {:.2f}, from {} outputs on\n"
    "ulp       most steps of the type between an output and the correctly rounded result; bar 1\n"
    "          (both without outputs that cancel to so little that FP32 cannot resolve a step)\n"
    "units     most FP32 units (2^-23) of its terms that an output is from being the exact value's rounding; bar {}\n"
    "rel L2    error against FP64; ideal: the correctly rounded result's; bar for bf16: equal to 3 digits\n"
    "stats     mean and rstd, in the same units; bar {}\n"
    "dW/bar    dweight and dbias in FP32: worst error over 2^-22 log2(M) sum|terms|; 16-bit ones must be its "
    "rounding\n";

std::vector<std::string> complaints(const std::string& name, const Line& line, const LineVerdict& verdict) {
  std::vector<std::string> list;
  const auto add = [&](bool fine, std::string text) {
    if (!fine) list.push_back(fmt::format("{}: {}", name, text));
  };
  const reference::Accuracy& out = line.output;
  add(verdict.output.share, fmt::format("{} of {} outputs are not correctly rounded",
                                        out.elements - out.cancelled - out.correct, out.elements - out.cancelled));
  add(verdict.output.worst,
      fmt::format("an output is {} ulp and {:.3g} FP32 units away, {} are wrongly finite or not; worst in {}",
                  out.worst_ulp, out.worst_units, out.wrong_non_finite, line.worst_case));
  add(verdict.output.l2,
      fmt::format("relative L2 error {:.4e}, correctly rounded {:.4e}", out.relative_l2(), out.ideal_relative_l2()));
  add(verdict.statistics, fmt::format("mean or rstd is {:.3g} FP32 units away, {} are wrongly finite or not",
                                      line.statistics.worst_units, line.statistics.wrong_non_finite));
  add(verdict.columns,
      fmt::format("dweight or dbias has {:.3g} times the error allowed, {} are wrongly finite or not; worst in {}",
                  line.columns.worst, line.columns.wrong_non_finite, line.worst_columns_case));
  add(line.wrong_sums == 0, fmt::format("{} elements of residual_out are not x + residual", line.wrong_sums));
  add(line.wrong_roundings == 0,
      fmt::format("{} elements of 16-bit dweight or dbias are not the FP32 ones rounded", line.wrong_roundings));
  return list;
}

nlohmann::ordered_json line_json(const LineKey& key, const Line& line) {
  const LineVerdict verdict = judge_line(key, line);
  const reference::Accuracy& out = line.output;
  nlohmann::ordered_json json{{"operation", verify_op_name(key.op, key.add)},
                              {"rounding", rounding_name(key.rounding)},
                              {"direction", key.backward ? "backward" : "forward"},
                              {"kind", kind_name(key.kind)},
                              {"dtype", tn_dtype_name(key.dtype)},
                              {"elements", out.elements},
                              {"correct", out.correct},
                              {"correct_share", out.correct_share()},
                              {"share_bar_applies", verdict.output.share_applies},
                              {"cancelled", out.cancelled},
                              {"worst_ulp", out.worst_ulp},
                              {"worst_fp32_units", out.worst_units},
                              {"wrong_non_finite", out.wrong_non_finite},
                              {"relative_l2", out.relative_l2()},
                              {"ideal_relative_l2", out.ideal_relative_l2()},
                              {"relative_l2_from_ideal", out.relative_l2_from_ideal()}};
  if (key.backward) {
    json["weight_gradient_columns"] = line.columns.columns;
    json["worst_weight_gradient_over_bar"] = line.columns.worst;
    json["worst_weight_gradient_case"] = line.worst_columns_case;
    json["wrong_weight_gradient_roundings"] = line.wrong_roundings;
  } else {
    json["worst_statistic_fp32_units"] = line.statistics.worst_units;
    json["wrong_sums"] = line.wrong_sums;
  }
  json["worst_case"] = line.worst_case;
  json["passed"] = verdict.passed();
  return json;
}

}  // namespace

void Line::add(const Line& other) {
  if (other.output.worst_units > output.worst_units || (worst_case.empty() && other.output.wrong_non_finite > 0)) {
    worst_case = other.worst_case;
  }
  if (other.columns.worst > columns.worst || (worst_columns_case.empty() && other.columns.wrong_non_finite > 0)) {
    worst_columns_case = other.worst_columns_case;
  }
  output.add(other.output);
  statistics.add(other.statistics);
  columns.add(other.columns);
  wrong_sums += other.wrong_sums;
  wrong_roundings += other.wrong_roundings;
}

void VerifyReport::add(const VerifyCase& c, const CaseResult& result) {
  const std::string name = describe(c);
  const auto add_line = [&](bool backward, tn_dtype dtype, Line line) {
    const LineKey key{c.op, c.add, c.rounding, backward, c.kind, dtype};
    line.output = line.output.normalised();
    line.worst_case = line.worst_columns_case = name;
    lines_[key].add(line);
    shapes_[{key, c.n, c.m}].add(line);
  };
  add_line(false, c.y, Line{result.y, result.statistics, {}, result.wrong_sums, 0, {}, {}});
  add_line(true, c.x, Line{result.dx, {}, result.columns, 0, result.wrong_roundings, {}, {}});
  if (c.add) add_line(true, c.residual, Line{result.dresidual, {}, {}, 0, 0, {}, {}});
}

bool VerifyReport::passed() const {
  for (const auto& [key, line] : lines_) {
    if (!judge_line(key, line).passed()) return false;
  }
  return true;
}

int64_t VerifyReport::outputs() const {
  int64_t sum = 0;
  for (const auto& [key, line] : lines_) sum += line.output.elements;
  return sum;
}

std::string VerifyReport::table() const {
  std::string text = fmt::format(kRowFormat, "operation", "round", "", "types", "outputs", "correct%", "ulp", "units",
                                 "rel L2", "ideal", "stats", "dW/bar", "");
  std::vector<std::string> problems;
  const LineKey* previous = nullptr;
  for (const auto& [key, line] : lines_) {
    if (previous != nullptr && (previous->op != key.op || previous->add != key.add)) text += "\n";
    previous = &key;
    text += row_text(key, line);
    for (std::string& problem : complaints(line_name(key), line, judge_line(key, line))) {
      problems.push_back(std::move(problem));
    }
  }
  text += "\n" + fmt::format(kLegend, 100 * reference::kCorrectShareBf16, 100 * reference::kCorrectShareF16,
                             reference::kShareMinimum, reference::kScaleUnits, reference::kStatisticUnits);
  if (!problems.empty()) text += fmt::format("\n{}\n", fmt::join(problems, "\n"));
  return text;
}

nlohmann::ordered_json VerifyReport::json() const {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const auto& [key, line] : lines_) lines.push_back(line_json(key, line));
  nlohmann::ordered_json shapes = nlohmann::ordered_json::array();
  for (const auto& [shape, line] : shapes_) {
    const auto& [key, n, m] = shape;
    nlohmann::ordered_json entry{{"n", n}, {"m", m}};
    // One shape has too few elements for the shares and the L2 errors to be judged: those bars hold for the lines.
    nlohmann::ordered_json values = line_json(key, line);
    values.erase("passed");
    values.erase("share_bar_applies");
    entry.update(values);
    shapes.push_back(std::move(entry));
  }
  return {{"passed", passed()}, {"lines", std::move(lines)}, {"shapes", std::move(shapes)}};
}

std::string coverage_text(const Coverage& coverage) {
  std::vector<std::string_view> roundings;
  for (const tn_rounding rounding : coverage.roundings) roundings.push_back(rounding_name(rounding));
  return fmt::format(
      "Covered: {} cases, forward and backward, rounding {}, offset {}.\n"
      "N: {}. M: {}.\n"
      "With every operation, rounding and offset: each uniform type on {} of {} pairs of N and M; each of {} mixes of "
      "the\n"
      "types of x, y, residual, weight and bias (absent included) on {} of {} N and {} of {} M.\n",
      coverage.cases, fmt::join(roundings, " and "), fmt::join(coverage.offsets, " and "), fmt::join(coverage.n, " "),
      fmt::join(coverage.m, " "), coverage.uniform_pairs, coverage.pairs, coverage.mixes, coverage.mix_n,
      coverage.n.size(), coverage.mix_m, coverage.m.size());
}

nlohmann::ordered_json coverage_json(const Coverage& coverage) {
  std::vector<std::string_view> roundings;
  for (const tn_rounding rounding : coverage.roundings) roundings.push_back(rounding_name(rounding));
  return {{"cases", coverage.cases},
          {"n", coverage.n},
          {"m", coverage.m},
          {"pairs", coverage.pairs},
          {"pairs_met_by_each_uniform_type", coverage.uniform_pairs},
          {"type_mixes", coverage.mixes},
          {"n_met_by_each_mix", coverage.mix_n},
          {"m_met_by_each_mix", coverage.mix_m},
          {"roundings", roundings},
          {"offsets", coverage.offsets}};
}

}  // namespace truenorm::cli
