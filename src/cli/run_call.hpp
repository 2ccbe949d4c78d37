#pragma once

#include <truenorm/truenorm.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/host_tensor.hpp"
#include "cli/io/stored_tensor.hpp"
#include "cli/library_call.hpp"
#include "cli/options.hpp"
#include "cli/run_inputs.hpp"

namespace truenorm::cli {

// The names of the outputs that an operation can have: y, s, mean, rstd, or dx, dresidual, dweight, dbias.
std::vector<std::string> possible_outputs(const RunSettings& settings);

// Those that -o writes: all that the inputs give a meaning to.
std::vector<std::string> default_outputs(const RunOptions& options, const RunSettings& settings);

// One call of the library on `inputs`, with memory for the outputs named. Everything passed in must
// stay. For a backward without rstd, the constructor runs the forward, and s takes x's place in `inputs`.
class RunCall {
 public:
  RunCall(const RunSettings& settings, RunInputs& inputs, const std::vector<std::string>& outputs,
          const Executor& executor);

  void run();
  // On a CUDA device: the call alone, on `stream`, as LibraryCall has it.
  void enqueue(void* stream);

  bool backward() const { return backward_; }
  const tn_forward_args& forward() const { return forward_args_; }
  const tn_backward_args& gradient() const { return backward_args_; }
  float eps() const { return eps_; }
  bool computed_statistics() const { return computed_statistics_; }
  std::vector<OutputTensor> outputs() const;

  // dweight and dbias before their one rounding, from a backward of its own; empty where not asked for.
  struct ColumnSums {
    std::vector<float> dweight;
    std::vector<float> dbias;
  };
  ColumnSums column_sums() const;

  // What one call must read and write at least: the bytes of each input and of each output.
  const std::vector<size_t>& reads() const { return reads_; }
  std::vector<size_t> writes() const;

 private:
  struct Output {
    std::string name;
    HostTensor tensor;
  };

  void compute_statistics(const RunSettings& settings, RunInputs& inputs);
  void prepare_forward(const RunSettings& settings, const RunInputs& inputs);
  void prepare_backward(const RunSettings& settings, const RunInputs& inputs, tn_dtype x_dtype);
  // Memory for output `name` if it was asked for; its tensor, absent otherwise.
  const HostTensor& place(const std::string& name, tn_dtype dtype, std::vector<int64_t> shape);

  bool backward_;
  bool computed_statistics_ = false;
  float eps_;
  const Executor& executor_;
  std::vector<std::string> wanted_;
  std::vector<Output> outputs_;
  tn_forward_args forward_args_{};
  tn_backward_args backward_args_{};
  std::optional<LibraryCall<tn_forward_args>> forward_call_;
  std::optional<LibraryCall<tn_backward_args>> backward_call_;
  std::vector<size_t> reads_;
};

}  // namespace truenorm::cli
