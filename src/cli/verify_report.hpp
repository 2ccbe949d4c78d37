// The accuracy table: collects what `truenorm verify` sees, judges it and shows it.
#pragma once

#include <truenorm/truenorm.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <tuple>

#include "cli/verify_case.hpp"
#include "cli/verify_plan.hpp"
#include "reference/measures.hpp"

namespace truenorm::cli {

// One line of the table.
struct LineKey {
  tn_op op;
  bool add;
  tn_rounding rounding;
  bool backward;
  CaseKind kind;
  tn_dtype dtype;  // of the outputs compared: y, or dx and dresidual

  bool operator<(const LineKey& other) const {
    return std::tie(op, add, rounding, backward, kind, dtype) <
           std::tie(other.op, other.add, other.rounding, other.backward, other.kind, other.dtype);
  }
};

struct Line {
  reference::Accuracy output;
  reference::Accuracy statistics;     // forward: mean and rstd
  reference::ColumnAccuracy columns;  // backward: dweight and dbias in FP32
  int64_t wrong_sums = 0;
  int64_t wrong_roundings = 0;
  // Which case has the largest of output.worst_units, and of columns.worst; empty where these are 0.
  std::string worst_case;
  std::string worst_columns_case;

  void add(const Line& other);
};

struct LineVerdict {
  reference::Verdict output;
  bool statistics = true;
  bool columns = true;
  bool exact = true;  // stored sums and 16-bit weight gradients
  bool passed() const { return output.passed() && statistics && columns && exact; }
};

class VerifyReport {
 public:
  void add(const VerifyCase& c, const CaseResult& result);

  bool passed() const;
  int64_t outputs() const;  // elements of matrices that were compared

  // A table for people, with the bars and what broke them below it.
  std::string table() const;
  // "lines" as in the table, and "shapes": the same for each pair of N and M.
  nlohmann::ordered_json json() const;

 private:
  using ShapeKey = std::tuple<LineKey, int64_t, int64_t>;  // N, M

  std::map<LineKey, Line> lines_;
  std::map<ShapeKey, Line> shapes_;
};

// What was run, in a few sentences; and as JSON.
std::string coverage_text(const Coverage& coverage);
nlohmann::ordered_json coverage_json(const Coverage& coverage);

}  // namespace truenorm::cli
