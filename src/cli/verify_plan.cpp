#include "cli/verify_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

constexpr std::array kTypes{TN_BF16, TN_F16, TN_F32};
constexpr std::array kTypesOrAbsent{TN_DTYPE_NONE, TN_BF16, TN_F16, TN_F32};

const std::vector<int64_t> kQuickN{1, 3, 64, 127, 384, 769, 2049, 4096};
const std::vector<int64_t> kQuickM{0, 1, 2, 127};
const std::vector<int64_t> kFullN{1,   2,   3,    7,    17,   63,   64,   127,  128,   384,   513,
                                  640, 769, 1600, 2049, 3584, 4096, 7168, 8192, 16384, 18432, 65537};
const std::vector<int64_t> kFullM{0, 1, 2, 127, 128, 1025};

// Larger mixed cases than this many elements get one of the smallest M instead, save one in kKeepLarge of them.
constexpr int64_t kMixedElements = int64_t{1} << 17;
constexpr size_t kKeepLarge = 64;
constexpr size_t kSmallM = 3;

struct Mode {
  tn_op op;
  tn_rounding rounding;
  float offset;
};
constexpr std::array<Mode, 6> kModes{{{TN_RMS_NORM, TN_ROUND_ONCE, 0},
                                      {TN_RMS_NORM, TN_ROUND_ONCE, 1},
                                      {TN_RMS_NORM, TN_ROUND_LLAMA, 0},
                                      {TN_RMS_NORM, TN_ROUND_LLAMA, 1},
                                      {TN_LAYER_NORM, TN_ROUND_ONCE, 0},
                                      {TN_LAYER_NORM, TN_ROUND_ONCE, 1}}};

using Mix = std::array<tn_dtype, 5>;  // x, y, residual, weight, bias

Mix mix_of(const VerifyCase& c) { return {c.x, c.y, c.residual, c.weight, c.bias}; }

std::vector<Mix> all_mixes() {
  std::vector<Mix> mixes;
  for (const tn_dtype x : kTypes)
    for (const tn_dtype y : kTypes)
      for (const tn_dtype residual : kTypesOrAbsent)
        for (const tn_dtype weight : kTypesOrAbsent)
          for (const tn_dtype bias : kTypesOrAbsent) mixes.push_back({x, y, residual, weight, bias});
  return mixes;
}

VerifyCase with_mode(const Mode& mode) {
  VerifyCase c;
  c.op = mode.op;
  c.rounding = mode.rounding;
  c.offset = mode.offset;
  return c;
}

VerifyCase uniform_case(const Mode& mode, bool add, tn_dtype type) {
  VerifyCase c = with_mode(mode);
  c.add = add;
  c.x = c.y = c.weight = type;
  if (add) c.residual = c.residual_out = type;
  if (mode.op == TN_LAYER_NORM) c.bias = type;
  return c;
}

CaseKind kind_of(const VerifyCase& c) {
  for (const tn_dtype type : {c.y, c.residual, c.residual_out, c.weight, c.bias}) {
    if (type != TN_DTYPE_NONE && type != c.x) return CaseKind::kMixed;
  }
  return CaseKind::kUniform;
}

class Planner {
 public:
  explicit Planner(const PlanOptions& options)
      : options_(options),
        n_(!options.n.empty() ? options.n : (options.full ? kFullN : kQuickN)),
        m_(!options.m.empty() ? options.m : (options.full ? kFullM : kQuickM)) {
    std::sort(m_.begin(), m_.end());
  }

  std::vector<VerifyCase> plan() && {
    for (const Mode& mode : kModes) {
      for (const bool add : {false, true}) {
        for (const tn_dtype type : kTypes) add_uniform(uniform_case(mode, add, type));
      }
    }
    const std::vector<Mix> mixes = all_mixes();
    for (size_t mode = 0; mode < kModes.size(); ++mode) {
      for (size_t mix = 0; mix < mixes.size(); ++mix) add_mixed(mode, mix, mixes[mix]);
    }
    return std::move(cases_);
  }

 private:
  void add(const VerifyCase& c) {
    const std::string_view name = verify_op_name(c.op, c.add);
    if (std::find(options_.ops.begin(), options_.ops.end(), name) != options_.ops.end()) cases_.push_back(c);
  }

  void add_uniform(VerifyCase c) {
    size_t pair = 0;
    for (const int64_t n : n_) {
      for (const int64_t m : m_) {
        c.n = n;
        c.m = m;
        c.with_ds = c.add && pair++ % 2 == 0;
        c.kind = CaseKind::kUniform;
        add(c);
        if (c.op == TN_LAYER_NORM && c.m > 0 && c.m <= 128) {
          c.kind = CaseKind::kMean;
          add(c);
        }
      }
    }
  }

  void add_mixed(size_t mode, size_t mix_index, const Mix& mix) {
    VerifyCase c = with_mode(kModes[mode]);
    std::tie(c.x, c.y, c.residual, c.weight, c.bias) = std::tuple_cat(mix);
    c.add = c.residual != TN_DTYPE_NONE;
    for (size_t i = 0; i < n_.size(); ++i) {
      const size_t turn = i + mix_index + mode;
      if (!options_.full && turn % n_.size() != 0) continue;
      c.n = n_[i];
      // In the quick set `turn` is a multiple of the number of N, so the mix alone chooses M.
      size_t m_index = (options_.full ? turn : mix_index / n_.size() + mode) % m_.size();
      const auto too_large = [&] { return c.n * m_[m_index] > kMixedElements && turn % kKeepLarge != 0; };
      if (too_large()) m_index %= std::min(kSmallM, m_.size());
      if (!options_.full && too_large()) continue;
      c.m = m_[m_index];
      if (c.add) {
        c.residual_out = kTypesOrAbsent[(turn + mix_index / kTypesOrAbsent.size()) % kTypesOrAbsent.size()];
        c.with_ds = turn % 3 != 0;
      }
      c.kind = kind_of(c);
      add(c);
    }
  }

  const PlanOptions& options_;
  std::vector<int64_t> n_;
  std::vector<int64_t> m_;
  std::vector<VerifyCase> cases_;
};

template <typename Key>
int64_t smallest_set(const std::map<Key, std::set<int64_t>>& sets) {
  size_t smallest = sets.empty() ? 0 : std::numeric_limits<size_t>::max();
  for (const auto& [key, set] : sets) smallest = std::min(smallest, set.size());
  return static_cast<int64_t>(smallest);
}

}  // namespace

std::string_view verify_op_name(tn_op op, bool add) {
  return kVerifyOps[(op == TN_LAYER_NORM ? 2U : 0U) + (add ? 1U : 0U)];
}

std::string describe(const VerifyCase& c) {
  return fmt::format("{} {} offset {} N {} M {}: x {}, y {}, residual {}, residual_out {}, weight {}, bias {}{}",
                     verify_op_name(c.op, c.add), rounding_name(c.rounding), c.offset, c.n, c.m, tn_dtype_name(c.x),
                     tn_dtype_name(c.y), tn_dtype_name(c.residual), tn_dtype_name(c.residual_out),
                     tn_dtype_name(c.weight), tn_dtype_name(c.bias), c.kind == CaseKind::kMean ? ", mean>0" : "");
}

std::vector<VerifyCase> make_plan(const PlanOptions& options) { return Planner(options).plan(); }

Coverage coverage_of(const std::vector<VerifyCase>& cases) {
  using Setting = std::tuple<std::string_view, tn_rounding, float>;
  Coverage coverage;
  std::set<int64_t> ns;
  std::set<int64_t> ms;
  std::set<std::pair<int64_t, int64_t>> pairs;
  std::set<Mix> mixes;
  std::set<float> offsets;
  std::set<tn_rounding> roundings;
  std::map<std::pair<Setting, tn_dtype>, std::set<std::pair<int64_t, int64_t>>> uniform_pairs;
  std::map<std::pair<Setting, Mix>, std::set<int64_t>> mix_n;
  std::map<std::pair<Setting, Mix>, std::set<int64_t>> mix_m;
  for (const VerifyCase& c : cases) {
    const Setting setting{verify_op_name(c.op, c.add), c.rounding, c.offset};
    ns.insert(c.n);
    ms.insert(c.m);
    pairs.emplace(c.n, c.m);
    mixes.insert(mix_of(c));
    offsets.insert(c.offset);
    roundings.insert(c.rounding);
    if (c.kind == CaseKind::kUniform) uniform_pairs[{setting, c.x}].emplace(c.n, c.m);
    mix_n[{setting, mix_of(c)}].insert(c.n);
    mix_m[{setting, mix_of(c)}].insert(c.m);
  }
  coverage.cases = static_cast<int64_t>(cases.size());
  coverage.n.assign(ns.begin(), ns.end());
  coverage.m.assign(ms.begin(), ms.end());
  coverage.pairs = static_cast<int64_t>(pairs.size());
  coverage.uniform_pairs = coverage.pairs;
  for (const auto& [key, set] : uniform_pairs) {
    coverage.uniform_pairs = std::min(coverage.uniform_pairs, static_cast<int64_t>(set.size()));
  }
  coverage.mixes = static_cast<int64_t>(mixes.size());
  coverage.mix_n = smallest_set(mix_n);
  coverage.mix_m = smallest_set(mix_m);
  coverage.offsets.assign(offsets.begin(), offsets.end());
  coverage.roundings.assign(roundings.begin(), roundings.end());
  return coverage;
}

}  // namespace truenorm::cli
