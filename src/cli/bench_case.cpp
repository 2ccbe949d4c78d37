#include "cli/bench_case.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "cli/elements.hpp"
#include "cli/error.hpp"

namespace truenorm::cli {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;

// Random numbers repeat after a while: making them all would take longer than timing them.
void fill(std::span<const std::byte> numbers, std::span<std::byte> out) {
  for (size_t at = 0; at < out.size(); at += numbers.size()) {
    std::memcpy(out.data() + at, numbers.data(), std::min(numbers.size(), out.size() - at));
  }
}

}  // namespace

size_t free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    size_t kilobytes = 0;
    if (name == "MemAvailable:" && file >> kilobytes) return kilobytes << 10U;
  }
  return std::numeric_limits<size_t>::max();
}

void BenchMemory::prepare(const BenchShape& shape, tn_dtype dtype, size_t rotate_bytes) {
  shape_ = shape;
  dtype_ = dtype;
  matrix_bytes_ = static_cast<size_t>(shape.m * shape.n) * tn_dtype_size(dtype);
  const size_t unit = matrix_bytes_ < kPage ? kLine : kPage;
  stride_ = (matrix_bytes_ + unit - 1) / unit * unit;
  const size_t set_bytes = (kInputs + kOutputs) * stride_;
  const size_t room = free_memory() / 2 + arena_.bytes().size();
  if (set_bytes > room) {
    user_error("--shape {}x{} in {} needs {} MB, and half of the free memory is {} MB", shape.m, shape.n,
               tn_dtype_name(dtype), set_bytes / 1'000'000, room / 1'000'000);
  }
  sets_ = std::clamp<size_t>((rotate_bytes + 2 * matrix_bytes_ - 1) / (2 * matrix_bytes_), 1, room / set_bytes);
  if (arena_.bytes().size() < sets_ * set_bytes) {
    arena_ = Buffer();
    arena_ = Buffer(sets_ * set_bytes);
    std::memset(arena_.bytes().data(), 0, arena_.bytes().size());  // so that no call meets an untouched page
  }
  const Buffer numbers(size_t{1} << 20U);
  fill_normal(dtype, 1, numbers.bytes());
  for (size_t set = 0; set < sets_; ++set) {
    for (size_t i = 0; i < kInputs; ++i) fill(numbers.bytes(), input(set, i));
  }
}

std::span<std::byte> BenchMemory::matrix(size_t set, size_t index) const {
  return arena_.bytes().subspan((set * (kInputs + kOutputs) + index) * stride_, matrix_bytes_);
}

BenchVectors::BenchVectors(const BenchShape& shape, tn_dtype dtype) {
  const auto make = [](Buffer& buffer, tn_dtype type, int64_t count) {
    buffer = Buffer(static_cast<size_t>(count) * tn_dtype_size(type));
    std::memset(buffer.bytes().data(), 0, buffer.bytes().size());
    return tn_vector(buffer.bytes().data(), type, count);
  };
  weight = make(buffers_[0], dtype, shape.n);
  bias = make(buffers_[1], dtype, shape.n);
  dweight = make(buffers_[2], dtype, shape.n);
  dbias = make(buffers_[3], dtype, shape.n);
  mean = make(buffers_[4], TN_F32, shape.m);
  rstd = make(buffers_[5], TN_F32, shape.m);
  fill_normal(dtype, 2, buffers_[0].bytes());
  fill_normal(dtype, 3, buffers_[1].bytes());
  fill_ones(TN_F32, buffers_[5].bytes());  // near what standard normal rows have
}

BenchCall::BenchCall(const BenchOp& op, Direction direction, const BenchMemory& memory, const BenchVectors& vectors,
                     const Executor& executor)
    : direction_(direction), add_(op.add), memory_(memory), exec_(executor.exec()) {
  const bool layer = op.op == TN_LAYER_NORM;
  const tn_tensor matrix = tn_matrix(nullptr, memory.dtype(), memory.shape().m, memory.shape().n);
  const tn_tensor absent{};
  if (direction == Direction::forward) {
    forward_.struct_size = sizeof(forward_);
    forward_.op = op.op;
    forward_.eps = 1e-6F;
    forward_.x = forward_.y = matrix;
    forward_.residual = forward_.residual_out = add_ ? matrix : absent;
    forward_.weight = vectors.weight;
    forward_.bias = layer ? vectors.bias : absent;
    forward_.mean = layer ? vectors.mean : absent;
    forward_.rstd = vectors.rstd;
  } else {
    backward_.struct_size = sizeof(backward_);
    backward_.op = op.op;
    backward_.dy = backward_.s = backward_.dx = matrix;
    backward_.ds = add_ ? matrix : absent;
    backward_.weight = vectors.weight;
    backward_.mean = layer ? vectors.mean : absent;
    backward_.rstd = vectors.rstd;
    if (direction == Direction::backward) {
      backward_.dweight = vectors.dweight;
      backward_.dbias = layer ? vectors.dbias : absent;
    }
  }
  tn_workspace sizes{};
  require_ok(direction == Direction::forward ? tn_forward_workspace(&exec_, &forward_, &sizes, &error_)
                                             : tn_backward_workspace(&exec_, &backward_, &sizes, &error_),
             error_);
  workspace_bytes_ = sizes.size;
  scratch_.emplace(sizes);
}

void BenchCall::operator()(size_t set) { direction_ == Direction::forward ? forward(set) : backward(set); }

void BenchCall::forward(size_t set) {
  forward_.x.data = memory_.input(set, 0).data();
  forward_.y.data = memory_.output(set, 0).data();
  if (add_) {
    forward_.residual.data = memory_.input(set, 1).data();
    forward_.residual_out.data = memory_.output(set, 1).data();
  }
  require_ok(tn_forward(&exec_, &forward_, scratch_->workspace(), &error_), error_);
}

void BenchCall::backward(size_t set) {
  backward_.dy.data = memory_.input(set, 0).data();
  backward_.s.data = memory_.input(set, 1).data();
  backward_.dx.data = memory_.output(set, 0).data();
  if (add_) backward_.ds.data = memory_.input(set, 2).data();
  require_ok(tn_backward(&exec_, &backward_, scratch_->workspace(), &error_), error_);
}

CopySet copy_set(const Traffic& traffic, const BenchMemory& memory, size_t set) {
  CopySet out;
  for (int i = 0; i < traffic.reads; ++i) out.reads.emplace_back(memory.input(set, static_cast<size_t>(i)));
  for (int i = 0; i < traffic.writes; ++i) out.writes.push_back(memory.output(set, static_cast<size_t>(i)));
  return out;
}

}  // namespace truenorm::cli
