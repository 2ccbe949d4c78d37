#include "cli/verify_case.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <vector>

#include "cli/library_call.hpp"
#include "cli/verify_data.hpp"
#include "reference/backward.hpp"
#include "reference/forward.hpp"
#include "reference/tensor.hpp"

namespace truenorm::cli {
namespace {

// Fewer elements than this are not worth another thread.
constexpr int64_t kElementsPerThread = 16384;

// A tensor with memory of its own, all bytes 0xFF: a NaN in every type, which shows elements that nothing wrote.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  static OwnedTensor matrix(tn_dtype dtype, int64_t rows, int64_t n) {
    OwnedTensor tensor(dtype, rows * n);
    if (dtype != TN_DTYPE_NONE) tensor.view_ = tn_matrix(tensor.data_.get(), dtype, rows, n);
    return tensor;
  }
  static OwnedTensor vector(tn_dtype dtype, int64_t n) {
    OwnedTensor tensor(dtype, n);
    if (dtype != TN_DTYPE_NONE) tensor.view_ = tn_vector(tensor.data_.get(), dtype, n);
    return tensor;
  }

  const tn_tensor& view() const { return view_; }

 private:
  OwnedTensor(tn_dtype dtype, int64_t elements) {
    // One byte more than needed, so that M = 0 has an address.
    const size_t bytes = static_cast<size_t>(elements) * tn_dtype_size(dtype) + 1;
    if (dtype == TN_DTYPE_NONE) return;
    data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memset(data_.get(), 0xFF, bytes);
  }

  std::unique_ptr<std::byte[]> data_;
  tn_tensor view_{};
};

template <typename T, size_t kCount>
T pick(const std::array<T, kCount>& values, uint64_t hash) {
  return values[hash % kCount];
}

// The random choices of a case.
struct Data {
  uint64_t key;
  Distribution x;
  Distribution residual;
  Distribution weight;
  Distribution bias;
  Distribution dy;
  Distribution ds;
  float eps;
};

Data choose_data(const VerifyCase& c, uint64_t seed) {
  uint64_t key = seed;
  for (const auto value :
       {static_cast<int64_t>(c.op), static_cast<int64_t>(c.add), static_cast<int64_t>(c.rounding),
        static_cast<int64_t>(std::bit_cast<uint32_t>(c.offset)), static_cast<int64_t>(c.kind),
        static_cast<int64_t>(c.x), static_cast<int64_t>(c.y), static_cast<int64_t>(c.residual),
        static_cast<int64_t>(c.residual_out), static_cast<int64_t>(c.weight), static_cast<int64_t>(c.bias), c.n, c.m}) {
    key = hash_with(key, static_cast<uint64_t>(value));
  }
  uint64_t draws = 0;
  const auto draw = [&] { return hash_with(key, ++draws); };

  Data data{};
  data.key = key;
  data.eps = pick(std::array{1e-6F, 1e-5F}, draw());
  data.x.scale = pick(std::array{0.01, 0.3, 1.0, 8.0, 100.0}, draw());
  data.x.outlier = pick(std::array{1.0, 30.0}, draw());
  data.residual = data.x;
  data.residual.scale *= pick(std::array{1.0, 3.0}, draw());
  if (c.kind == CaseKind::kMean) {
    data.x.scale = pick(std::array{0.01, 1.0}, draw());
    data.residual.scale = data.x.scale;
    const double ratio = c.x == TN_F32 ? 2000 : (c.x == TN_F16 ? 300 : 30);
    data.x.mean = data.x.scale * pick(std::array{1.0, 30.0, ratio}, draw());
    data.residual.mean = data.x.mean / 2;
  } else if (c.op == TN_LAYER_NORM) {
    data.x.mean = data.x.scale * pick(std::array{0.0, 0.1}, draw());
  }
  // With the offset about 1 either way.
  data.weight = {1 - static_cast<double>(c.offset), 0.2, 1};
  data.bias = {0, 0.1, 1};
  data.dy.scale = pick(std::array{0.001, 0.06, 1.0, 20.0}, draw());
  data.dy.outlier = pick(std::array{1.0, 30.0}, draw());
  data.ds.scale = data.dy.scale;
  return data;
}

// Runs work(begin, end) for contiguous shares of the rows, each on a thread of its own, and returns what they return.
template <typename Result, typename Work>
std::vector<Result> over_rows(int32_t threads, int64_t row_count, int64_t n, const Work& work) {
  const int64_t useful = std::max<int64_t>(row_count * n / kElementsPerThread, 1);
  const int64_t workers = std::min({int64_t{threads}, useful, std::max<int64_t>(row_count, 1)});
  std::vector<std::future<Result>> futures;
  for (int64_t worker = 1; worker < workers; ++worker) {
    futures.push_back(std::async(std::launch::async, [&work, worker, workers, row_count] {
      return work(row_count * worker / workers, row_count * (worker + 1) / workers);
    }));
  }
  std::vector<Result> results;
  results.push_back(work(0, row_count / workers));
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

class CaseRun {
 public:
  CaseRun(const VerifyCase& c, uint64_t seed, const Executor& executor)
      : c_(c),
        data_(choose_data(c, seed)),
        executor_(executor),
        weight_(OwnedTensor::vector(c.weight, c.n)),
        bias_(OwnedTensor::vector(c.bias, c.n)),
        saved_mean_(OwnedTensor::vector(c.op == TN_LAYER_NORM ? TN_F32 : TN_DTYPE_NONE, c.m)),
        saved_rstd_(OwnedTensor::vector(TN_F32, c.m)),
        mean_(static_cast<size_t>(c.m)),
        rstd_(static_cast<size_t>(c.m)) {
    fill(weight_, kWeight, data_.weight);
    fill(bias_, kBias, data_.bias);
  }

  CaseResult run() {
    forward();
    backward();
    return result_;
  }

 private:
  enum Tensor : uint64_t { kX = 1, kResidual, kWeight, kBias, kDy, kDs };

  void fill(const OwnedTensor& tensor, Tensor which, const Distribution& distribution) const {
    const tn_tensor& view = tensor.view();
    if (!reference::present(view)) return;
    over_rows<int>(executor_.threads(), reference::rows(view), c_.n, [&](int64_t begin, int64_t end) {
      std::vector<double> scratch(static_cast<size_t>(c_.n));
      for (int64_t row = begin; row < end; ++row) {
        fill_row(view, row, hash_with(data_.key, which), distribution, scratch.data());
      }
      return 0;
    });
  }

  OwnedTensor random_matrix(tn_dtype dtype, Tensor which, const Distribution& distribution) const {
    OwnedTensor tensor = OwnedTensor::matrix(dtype, c_.m, c_.n);
    fill(tensor, which, distribution);
    return tensor;
  }

  void forward() {
    const OwnedTensor x = random_matrix(c_.x, kX, data_.x);
    const OwnedTensor residual = random_matrix(c_.residual, kResidual, data_.residual);
    const OwnedTensor y = OwnedTensor::matrix(c_.y, c_.m, c_.n);
    OwnedTensor residual_out = OwnedTensor::matrix(c_.residual_out, c_.m, c_.n);
    tn_forward_args args{};
    args.struct_size = sizeof(args);
    args.op = c_.op;
    args.rounding = c_.rounding;
    args.eps = data_.eps;
    args.offset = c_.offset;
    args.x = x.view();
    args.residual = residual.view();
    args.weight = weight_.view();
    args.bias = bias_.view();
    args.y = y.view();
    args.residual_out = residual_out.view();
    args.mean = saved_mean_.view();
    args.rstd = saved_rstd_.view();
    LibraryCall(executor_.exec(), args).run();

    // What the backward reads: s, from the oracle, in the type that the forward gave it.
    s_ = OwnedTensor::matrix(c_.add ? (c_.residual_out != TN_DTYPE_NONE ? c_.residual_out : c_.residual) : c_.x, c_.m,
                             c_.n);
    const reference::Forward oracle(args);
    const auto parts = over_rows<CaseResult>(executor_.threads(), c_.m, c_.n, [&](int64_t begin, int64_t end) {
      return compare_forward(args, oracle, begin, end);
    });
    for (const CaseResult& part : parts) {
      result_.y.add(part.y);
      result_.statistics.add(part.statistics);
      result_.wrong_sums += part.wrong_sums;
    }
  }

  CaseResult compare_forward(const tn_forward_args& args, const reference::Forward& oracle, int64_t begin,
                             int64_t end) {
    CaseResult part;
    reference::ForwardRow exact;
    std::vector<double> ours(static_cast<size_t>(c_.n));
    const std::vector<double> mean = load_statistics(args.mean);
    const std::vector<double> rstd = load_statistics(args.rstd);
    for (int64_t row = begin; row < end; ++row) {
      const auto m = static_cast<size_t>(row);
      oracle.row(row, exact);
      reference::load_row(args.y, row, ours.data());
      reference::compare_row(reference::format_of(c_.y), ours.data(), exact.y.data(),
                             exact.y_other.empty() ? nullptr : exact.y_other.data(), exact.y_scale.data(), c_.n,
                             part.y);
      if (reference::present(args.residual_out)) {
        reference::load_row(args.residual_out, row, ours.data());
        for (size_t i = 0; i < ours.size(); ++i) part.wrong_sums += ours[i] != exact.s[i] ? 1 : 0;
      }
      reference::compare_row(reference::kF32, &rstd[m], &exact.rstd, nullptr, &exact.rstd, 1, part.statistics);
      if (reference::present(args.mean)) {
        reference::compare_row(reference::kF32, &mean[m], &exact.mean, nullptr, &exact.mean_magnitude, 1,
                               part.statistics);
      }
      reference::store_row(s_.view(), row, exact.s.data());
      mean_[m] = exact.mean;
      rstd_[m] = exact.rstd;
    }
    return part;
  }

  static std::vector<double> load_statistics(const tn_tensor& tensor) {
    return reference::present(tensor) ? reference::load_vector(tensor) : std::vector<double>();
  }

  void backward() {
    const OwnedTensor dy = random_matrix(c_.y, kDy, data_.dy);
    const OwnedTensor ds = random_matrix(c_.with_ds ? s_.view().dtype : TN_DTYPE_NONE, kDs, data_.ds);
    const OwnedTensor dx = OwnedTensor::matrix(c_.x, c_.m, c_.n);
    const OwnedTensor dresidual = OwnedTensor::matrix(c_.residual, c_.m, c_.n);
    const OwnedTensor dweight = OwnedTensor::vector(c_.weight == TN_DTYPE_NONE ? TN_DTYPE_NONE : TN_F32, c_.n);
    const OwnedTensor dbias = OwnedTensor::vector(c_.bias == TN_DTYPE_NONE ? TN_DTYPE_NONE : TN_F32, c_.n);
    tn_backward_args args{};
    args.struct_size = sizeof(args);
    args.op = c_.op;
    args.rounding = c_.rounding;
    args.x_dtype = c_.x;
    args.offset = c_.offset;
    args.dy = dy.view();
    args.ds = ds.view();
    args.s = s_.view();
    args.weight = weight_.view();
    args.mean = saved_mean_.view();
    args.rstd = saved_rstd_.view();
    args.dx = dx.view();
    args.dresidual = dresidual.view();
    args.dweight = dweight.view();
    args.dbias = dbias.view();
    LibraryCall(executor_.exec(), args).run();

    const reference::Backward oracle(args, mean_, rstd_);
    const auto parts = over_rows<BackwardPart>(executor_.threads(), c_.m, c_.n, [&](int64_t begin, int64_t end) {
      return compare_backward(args, oracle, begin, end);
    });
    reference::ColumnSums sums(c_.n);
    for (const BackwardPart& part : parts) {
      result_.dx.add(part.dx);
      result_.dresidual.add(part.dresidual);
      sums.add(part.sums);
    }
    compare_columns(args, sums);
    check_stored_columns(args);
  }

  struct BackwardPart {
    reference::Accuracy dx;
    reference::Accuracy dresidual;
    reference::ColumnSums sums;
  };

  BackwardPart compare_backward(const tn_backward_args& args, const reference::Backward& oracle, int64_t begin,
                                int64_t end) const {
    BackwardPart part{{}, {}, reference::ColumnSums(c_.n)};
    reference::BackwardRow exact;
    std::vector<double> ours(static_cast<size_t>(c_.n));
    const auto compare = [&](const tn_tensor& tensor, int64_t row, reference::Accuracy& accuracy) {
      if (!reference::present(tensor)) return;
      reference::load_row(tensor, row, ours.data());
      reference::compare_row(reference::format_of(tensor.dtype), ours.data(), exact.ds_total.data(), nullptr,
                             exact.scale.data(), c_.n, accuracy);
    };
    for (int64_t row = begin; row < end; ++row) {
      oracle.row(row, exact, part.sums);
      compare(args.dx, row, part.dx);
      compare(args.dresidual, row, part.dresidual);
    }
    return part;
  }

  void compare_columns(const tn_backward_args& args, const reference::ColumnSums& sums) {
    if (reference::present(args.dweight)) {
      reference::compare_columns(reference::load_vector(args.dweight), sums.dweight, sums.dweight_magnitude,
                                 sums.dweight_slack, c_.m, result_.columns);
    }
    if (reference::present(args.dbias)) {
      reference::compare_columns(reference::load_vector(args.dbias), sums.dbias, sums.dbias_magnitude, {}, c_.m,
                                 result_.columns);
    }
  }

  // Asks for the weight gradients alone, in the types of weight and bias, where those are narrower than FP32.
  void check_stored_columns(const tn_backward_args& fp32) {
    const auto narrow = [](tn_dtype dtype) { return dtype == TN_F32 ? TN_DTYPE_NONE : dtype; };
    const OwnedTensor dweight = OwnedTensor::vector(narrow(c_.weight), c_.n);
    const OwnedTensor dbias = OwnedTensor::vector(narrow(c_.bias), c_.n);
    if (!reference::present(dweight.view()) && !reference::present(dbias.view())) return;
    tn_backward_args args = fp32;
    args.dx = {};
    args.dresidual = {};
    args.dweight = dweight.view();
    args.dbias = dbias.view();
    args.ds = {};
    LibraryCall(executor_.exec(), args).run();
    const auto count = [&](const tn_tensor& stored, const tn_tensor& exact) {
      if (!reference::present(stored)) return;
      result_.wrong_roundings += reference::count_wrong_roundings(
          reference::format_of(stored.dtype), reference::load_vector(stored), reference::load_vector(exact));
    };
    count(args.dweight, fp32.dweight);
    count(args.dbias, fp32.dbias);
  }

  VerifyCase c_;
  Data data_;
  const Executor& executor_;
  OwnedTensor weight_;
  OwnedTensor bias_;
  OwnedTensor saved_mean_;
  OwnedTensor saved_rstd_;
  OwnedTensor s_;
  std::vector<double> mean_;  // exact
  std::vector<double> rstd_;
  CaseResult result_;
};

}  // namespace

CaseResult run_case(const VerifyCase& c, uint64_t seed, const Executor& executor) {
  return CaseRun(c, seed, executor).run();
}

}  // namespace truenorm::cli
