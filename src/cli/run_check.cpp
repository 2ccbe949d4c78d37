#include "cli/run_check.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "reference/backward.hpp"
#include "reference/forward.hpp"
#include "reference/measures.hpp"
#include "reference/tensor.hpp"

namespace truenorm::cli {
namespace {

using reference::Accuracy;
using reference::present;

// work(worker, first, last) for `workers` even parts of [0, count), each on a thread of its own.
void split(int64_t count, int workers, const std::function<void(size_t, int64_t, int64_t)>& work) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(workers));
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back(work, static_cast<size_t>(w), count * w / workers, count * (w + 1) / workers);
  }
}

template <typename T>
T total(const std::vector<T>& parts) {
  T sum = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) sum.add(parts[i]);
  return sum;
}

CheckLine line_of(const char* name, tn_dtype dtype, const Accuracy& accuracy) {
  CheckLine line{name, dtype};
  line.passed = reference::judge(dtype, accuracy).passed();
  line.correct_share = accuracy.correct_share();
  line.worst_ulp = accuracy.worst_ulp;
  line.worst_units = accuracy.worst_units;
  line.relative_l2 = accuracy.relative_l2();
  line.ideal_relative_l2 = accuracy.ideal_relative_l2();
  return line;
}

struct ForwardParts {
  Accuracy y, s, mean, rstd;

  void add(const ForwardParts& other) {
    y.add(other.y);
    s.add(other.s);
    mean.add(other.mean);
    rstd.add(other.rstd);
  }
};

// Compares an output row, if the output is there.
void compare(const tn_tensor& output, int64_t row, const std::vector<double>& exact, const std::vector<double>* other,
             const std::vector<double>& scale, Accuracy& accuracy) {
  if (!present(output)) return;
  std::vector<double> ours(exact.size());
  reference::load_row(output, row, ours.data());
  const double* second = other != nullptr && !other->empty() ? other->data() : nullptr;
  reference::compare_row(reference::format_of(output.dtype), ours.data(), exact.data(), second, scale.data(),
                         static_cast<int64_t>(exact.size()), accuracy);
}

// The same for an entry of mean or rstd.
void compare_statistic(const tn_tensor& output, int64_t row, double exact, double scale, Accuracy& accuracy) {
  if (!present(output)) return;
  const double ours = static_cast<const float*>(output.data)[row];
  reference::compare_row(reference::kF32, &ours, &exact, nullptr, &scale, 1, accuracy);
}

// rstd itself, and what an FP32 mean that is off by a unit adds to the variance: its square.
double rstd_scale(const reference::ForwardRow& row) {
  const double ratio = row.mean_magnitude * row.rstd;
  return row.rstd * (1 + ratio * ratio * reference::kFp32Unit);
}

CheckLine statistic_line(const char* name, const Accuracy& accuracy) {
  CheckLine line = line_of(name, TN_F32, accuracy);
  line.passed = reference::statistics_passed(accuracy);
  return line;
}

std::vector<CheckLine> check_forward(const RunCall& call, int workers) {
  const tn_forward_args& args = call.forward();
  const reference::Forward oracle(args);
  std::vector<ForwardParts> parts(static_cast<size_t>(workers));
  split(oracle.rows(), workers, [&](size_t worker, int64_t first, int64_t last) {
    ForwardParts& seen = parts[worker];
    reference::ForwardRow row;
    for (int64_t m = first; m < last; ++m) {
      oracle.row(m, row);
      compare(args.y, m, row.y, &row.y_other, row.y_scale, seen.y);
      // s is one FP32 add and one rounding, which the oracle repeats: any difference at all is wrong.
      compare(args.residual_out, m, row.s, nullptr, std::vector<double>(row.s.size()), seen.s);
      compare_statistic(args.mean, m, row.mean, row.mean_magnitude, seen.mean);
      compare_statistic(args.rstd, m, row.rstd, rstd_scale(row), seen.rstd);
    }
  });
  const ForwardParts all = total(parts);
  std::vector<CheckLine> lines;
  if (present(args.y)) lines.push_back(line_of("y", args.y.dtype, all.y));
  if (present(args.residual_out)) {
    lines.push_back(line_of("s", args.residual_out.dtype, all.s));
    lines.back().passed = all.s.correct == all.s.elements;
  }
  if (present(args.mean)) lines.push_back(statistic_line("mean", all.mean));
  if (present(args.rstd)) lines.push_back(statistic_line("rstd", all.rstd));
  return lines;
}

// The statistics in FP64, where the call's own are computed and not given.
void exact_statistics(const RunCall& call, int workers, std::vector<double>& mean, std::vector<double>& rstd) {
  const tn_backward_args& args = call.gradient();
  tn_forward_args forward{};
  forward.struct_size = sizeof(forward);
  forward.op = args.op;
  forward.eps = call.eps();
  forward.x = args.s;
  forward.y = args.s;  // counts for its type alone
  const reference::Forward oracle(forward);
  mean.resize(static_cast<size_t>(oracle.rows()));
  rstd.resize(mean.size());
  split(oracle.rows(), workers, [&](size_t, int64_t first, int64_t last) {
    reference::ForwardRow row;
    for (int64_t m = first; m < last; ++m) {
      oracle.row(m, row);
      mean[static_cast<size_t>(m)] = row.mean;
      rstd[static_cast<size_t>(m)] = row.rstd;
    }
  });
}

CheckLine check_columns(const char* name, const tn_tensor& stored, const std::vector<float>& fp32,
                        const std::vector<double>& exact, const std::vector<double>& magnitude,
                        const std::vector<double>& slack, int64_t rows) {
  const std::vector<double> sums(fp32.begin(), fp32.end());
  reference::ColumnAccuracy accuracy;
  reference::compare_columns(sums, exact, magnitude, slack, rows, accuracy);
  const int64_t wrong =
      reference::count_wrong_roundings(reference::format_of(stored.dtype), reference::load_vector(stored), sums);
  CheckLine line{name, stored.dtype};
  line.column_sums = true;
  line.worst_bars = accuracy.worst;
  line.passed = accuracy.passed() && wrong == 0;
  return line;
}

std::vector<CheckLine> check_backward(const RunCall& call, int workers) {
  const tn_backward_args& args = call.gradient();
  std::vector<double> mean;
  std::vector<double> rstd;
  if (call.computed_statistics()) exact_statistics(call, workers, mean, rstd);
  const reference::Backward oracle(args, mean, rstd);
  std::vector<Accuracy> dx(static_cast<size_t>(workers));
  std::vector<Accuracy> dresidual(dx.size());
  std::vector<reference::ColumnSums> sums(dx.size(), reference::ColumnSums(oracle.columns()));
  split(oracle.rows(), workers, [&](size_t worker, int64_t first, int64_t last) {
    reference::BackwardRow row;
    for (int64_t m = first; m < last; ++m) {
      oracle.row(m, row, sums[worker]);
      compare(args.dx, m, row.ds_total, nullptr, row.scale, dx[worker]);
      compare(args.dresidual, m, row.ds_total, nullptr, row.scale, dresidual[worker]);
    }
  });
  std::vector<CheckLine> lines;
  if (present(args.dx)) lines.push_back(line_of("dx", args.dx.dtype, total(dx)));
  if (present(args.dresidual)) lines.push_back(line_of("dresidual", args.dresidual.dtype, total(dresidual)));
  if (!present(args.dweight) && !present(args.dbias)) return lines;

  const reference::ColumnSums exact = total(sums);
  const RunCall::ColumnSums fp32 = call.column_sums();
  if (present(args.dweight)) {
    lines.push_back(check_columns("dweight", args.dweight, fp32.dweight, exact.dweight, exact.dweight_magnitude,
                                  exact.dweight_slack, oracle.rows()));
  }
  if (present(args.dbias)) {
    lines.push_back(
        check_columns("dbias", args.dbias, fp32.dbias, exact.dbias, exact.dbias_magnitude, {}, oracle.rows()));
  }
  return lines;
}

}  // namespace

std::vector<CheckLine> check_outputs(const RunCall& call, const Executor& executor) {
  return call.backward() ? check_backward(call, executor.threads()) : check_forward(call, executor.threads());
}

}  // namespace truenorm::cli
