#include "cli/bench_case.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "cli/elements.hpp"
#include "cli/error.hpp"

namespace truenorm::cli {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;
constexpr size_t kDeviceUnit = 256;

}  // namespace

size_t free_memory(tn_device_type device) {
  if (device == TN_CUDA) return free_device_memory();
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    size_t kilobytes = 0;
    if (name == "MemAvailable:" && file >> kilobytes) return kilobytes << 10U;
  }
  return std::numeric_limits<size_t>::max();
}

void BenchMemory::prepare(const BenchShape& shape, tn_dtype dtype, size_t rotate_bytes, const BenchLayout& layout) {
  shape_ = shape;
  dtype_ = dtype;
  layout_ = layout;
  matrix_bytes_ = static_cast<size_t>(shape.m * shape.n) * tn_dtype_size(dtype);
  const size_t unit = device_ == TN_CUDA ? kDeviceUnit : (matrix_bytes_ < kPage ? kLine : kPage);
  const size_t gap_bytes = static_cast<size_t>(shape.m * layout.row_gap) * tn_dtype_size(dtype);
  stride_ = (matrix_bytes_ + gap_bytes + unit - 1) / unit * unit;
  const size_t set_bytes = (kInputs + kOutputs) * stride_;
  const size_t room = free_memory(device_) / 2 + arena_.bytes().size();
  if (set_bytes > room) {
    user_error("--shape {}x{} in {} needs {} MB, and half of the free memory is {} MB", shape.m, shape.n,
               tn_dtype_name(dtype), set_bytes / 1'000'000, room / 1'000'000);
  }
  // On the device tiny matrices lie far apart: counting the gaps keeps the memory within a few times `rotate_bytes`.
  const size_t call_bytes = (layout.in_place ? 1 : 2) * (device_ == TN_CUDA ? stride_ : matrix_bytes_);
  sets_ = std::clamp<size_t>((rotate_bytes + call_bytes - 1) / call_bytes, 1, room / set_bytes);
  if (arena_.bytes().size() < sets_ * set_bytes) {
    arena_ = Memory();
    arena_ = Memory(device_, sets_ * set_bytes);
  }
  // Random numbers repeat after a while: making them all would take longer than timing them. The outputs get some too,
  // so that no call meets an untouched page.
  Buffer& numbers = numbers_[dtype];
  if (numbers.bytes().empty()) {
    numbers = Buffer(size_t{1} << 20U);
    fill_normal(dtype, 1, numbers.bytes());
  }
  arena_.fill(numbers.bytes(), sets_ * set_bytes);
}

std::span<std::byte> BenchMemory::matrix(size_t set, size_t index) const {
  return arena_.bytes().subspan((set * (kInputs + kOutputs) + index) * stride_, matrix_bytes_);
}

BenchVectors::BenchVectors(const BenchMemory& beside, tn_dtype weight_dtype) {
  const auto make = [&](Memory& memory, tn_dtype type, int64_t count, const auto& fill) {
    const Buffer values(static_cast<size_t>(count) * tn_dtype_size(type));
    fill(type, values.bytes());
    memory = Memory(beside.device(), values.bytes().size());
    memory.fill(values.bytes(), values.bytes().size());
    return tn_vector(memory.bytes().data(), type, count);
  };
  const auto constant = [](double value) {
    return [value](tn_dtype type, std::span<std::byte> out) { fill_with(type, value, out); };
  };
  const auto vector = [in_place = beside.layout().in_place](double value, uint64_t seed) {
    return [in_place, value, seed](tn_dtype type, std::span<std::byte> out) {
      in_place ? fill_with(type, value, out) : fill_normal(type, seed, out);
    };
  };
  const auto [m, n] = beside.shape();
  weight = make(memory_[0], weight_dtype, n, vector(-1, 2));
  bias = make(memory_[1], weight_dtype, n, vector(0, 3));
  dweight = make(memory_[2], weight_dtype, n, constant(0));
  dbias = make(memory_[3], weight_dtype, n, constant(0));
  // Near what standard normal rows have. The backward's stay so: in place, another rstd would have dy grow or vanish.
  mean = make(memory_[4], TN_F32, m, constant(0));
  rstd = make(memory_[5], TN_F32, m, constant(1));
  mean_out = make(memory_[6], TN_F32, m, constant(0));
  rstd_out = make(memory_[7], TN_F32, m, constant(0));
}

BenchCall::BenchCall(const BenchOp& op, Direction direction, const BenchMemory& memory, const BenchVectors& vectors,
                     const tn_exec& exec)
    : direction_(direction), add_(op.add), in_place_(memory.layout().in_place), memory_(memory), exec_(exec) {
  const bool layer = op.op == TN_LAYER_NORM;
  tn_tensor matrix = tn_matrix(nullptr, memory.dtype(), memory.shape().m, memory.shape().n);
  matrix.strides[0] += memory.layout().row_gap;
  const tn_tensor absent{};
  if (direction == Direction::forward) {
    forward_.struct_size = sizeof(forward_);
    forward_.op = op.op;
    forward_.eps = 1e-6F;
    if (in_place_) forward_.in_place = TN_Y_OVER_X | (add_ ? TN_RESIDUAL_OUT_OVER_RESIDUAL : 0);
    forward_.x = forward_.y = matrix;
    forward_.residual = forward_.residual_out = add_ ? matrix : absent;
    forward_.weight = vectors.weight;
    forward_.bias = layer ? vectors.bias : absent;
    forward_.mean = layer ? vectors.mean_out : absent;
    forward_.rstd = vectors.rstd_out;
  } else {
    backward_.struct_size = sizeof(backward_);
    backward_.op = op.op;
    if (in_place_) backward_.in_place = TN_DX_OVER_DY;
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
  scratch_.emplace(exec_.device, sizes);
}

void BenchCall::operator()(size_t set) { direction_ == Direction::forward ? forward(set) : backward(set); }

void BenchCall::forward(size_t set) {
  forward_.x.data = memory_.input(set, 0).data();
  forward_.y.data = in_place_ ? forward_.x.data : memory_.output(set, 0).data();
  if (add_) {
    // In place not the input that the backward needs to stay normal numbers, its s.
    forward_.residual.data = memory_.input(set, in_place_ ? 2 : 1).data();
    forward_.residual_out.data = in_place_ ? forward_.residual.data : memory_.output(set, 1).data();
  }
  require_ok(tn_forward(&exec_, &forward_, scratch_->workspace(), &error_), error_);
}

void BenchCall::backward(size_t set) {
  backward_.dy.data = memory_.input(set, 0).data();
  backward_.s.data = memory_.input(set, 1).data();
  backward_.dx.data = in_place_ ? backward_.dy.data : memory_.output(set, 0).data();
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
