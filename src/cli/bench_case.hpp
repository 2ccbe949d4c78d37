// The memory that `truenorm bench` works on, and the calls that it times.
#pragma once

#include <truenorm/truenorm.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "cli/bench_plan.hpp"
#include "cli/floor.hpp"
#include "cli/host_tensor.hpp"
#include "cli/memory.hpp"
#include "cli/options.hpp"

namespace truenorm::cli {

// Sets of matrices of one shape and type, in one piece of memory: enough sets that, taken in turn, a call meets
// memory which no cache holds any more.
class BenchMemory {
 public:
  static constexpr size_t kInputs = 3;
  static constexpr size_t kOutputs = 2;

  explicit BenchMemory(tn_device_type device = TN_CPU) : device_(device) {}

  // At least `rotate_bytes` of one input and one output (in place: of the one matrix that is both) pass before a set
  // comes again, or as much as half of the free memory allows. All become standard normal numbers. Throws UserError
  // where not even one set fits.
  void prepare(const BenchShape& shape, tn_dtype dtype, size_t rotate_bytes, const BenchLayout& layout = {});

  tn_device_type device() const { return device_; }
  size_t sets() const { return sets_; }
  BenchShape shape() const { return shape_; }
  tn_dtype dtype() const { return dtype_; }
  const BenchLayout& layout() const { return layout_; }
  // What moves when a matrix is read or written: its rows, without the gaps. Matrices begin where their spans do, and
  // reach beyond them by as much as the gaps take.
  size_t matrix_bytes() const { return matrix_bytes_; }
  std::span<std::byte> input(size_t set, size_t index) const { return matrix(set, index); }
  std::span<std::byte> output(size_t set, size_t index) const { return matrix(set, kInputs + index); }

 private:
  std::span<std::byte> matrix(size_t set, size_t index) const;

  tn_device_type device_;
  Memory arena_;
  std::map<tn_dtype, Buffer> numbers_;
  BenchShape shape_{1, 1};
  tn_dtype dtype_ = TN_F32;
  BenchLayout layout_;
  size_t matrix_bytes_ = 0;
  size_t stride_ = 0;  // from matrix to matrix
  size_t sets_ = 0;
};

// What stays from call to call: weights, their gradients, statistics. In place, where what one call wrote is the next
// one's input, weights are -1 and biases 0: the magnitude of what is normalised stays, and what one call adds to a
// residual or a gradient, the next one takes away. Random weights would have values vanish, into subnormal numbers.
class BenchVectors {
 public:
  // `weight_dtype`: of weight, bias and their gradients.
  BenchVectors(const BenchMemory& beside, tn_dtype weight_dtype);
  tn_tensor weight, bias, dweight, dbias;  // [N]
  tn_tensor mean, rstd;                    // [M], what the backward reads
  tn_tensor mean_out, rstd_out;            // [M], what the forward writes

 private:
  Memory memory_[8];
};

// One operation in one direction. In place, y is written over x, and with the residual add s over the residual; in the
// backward dx over dy. Everything passed in but `exec` must stay.
class BenchCall {
 public:
  BenchCall(const BenchOp& op, Direction direction, const BenchMemory& memory, const BenchVectors& vectors,
            const tn_exec& exec);

  void operator()(size_t set);

  // What the library asked for.
  size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  void forward(size_t set);
  void backward(size_t set);

  Direction direction_;
  bool add_;
  bool in_place_;
  const BenchMemory& memory_;
  tn_exec exec_;
  tn_forward_args forward_{};
  tn_backward_args backward_{};
  tn_error error_{};
  size_t workspace_bytes_ = 0;
  std::optional<Scratch> scratch_;
};

// The matrices that a call on set `set` reads and writes.
CopySet copy_set(const Traffic& traffic, const BenchMemory& memory, size_t set);

// Bytes that could still be taken without the machine, or the CUDA device, running out of memory.
size_t free_memory(tn_device_type device = TN_CPU);

}  // namespace truenorm::cli
