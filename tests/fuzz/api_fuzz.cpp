// The C API on any arguments. Whatever it accepts, it stays inside the buffers (each an exact allocation, which
// AddressSanitizer guards) and writes only elements of its outputs; where it refuses, it writes nothing.
#include <fuzzer/FuzzedDataProvider.h>
#include <truenorm/truenorm.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "refusal.hpp"
#include "view_memory.hpp"

namespace {

using truenorm::fuzz::Block;
using truenorm::fuzz::Memory;
using truenorm::fuzz::require;

constexpr size_t kMaxScratch = size_t{1} << 26;

// `args` in an allocation no larger than its struct_size says.
template <typename Args>
class Exact {
 public:
  explicit Exact(const Args& args)
      : memory_(new std::byte[std::clamp(args.struct_size, sizeof(size_t), sizeof(Args))]) {
    std::memcpy(memory_.get(), &args, std::clamp(args.struct_size, sizeof(size_t), sizeof(Args)));
  }
  const Args* get() const { return reinterpret_cast<const Args*>(memory_.get()); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

tn_threads* make_pool(int32_t count) {
  tn_threads* pool = nullptr;
  require(tn_threads_create(count, &pool, nullptr) == TN_OK, "a pool can be made");
  return pool;
}

void check_error(tn_status status, const tn_error& error) {
  require(status >= TN_OK && status <= TN_DEVICE_ERROR, "the status is one of those declared");
  const void* end = std::memchr(error.message, '\0', sizeof(error.message));
  require(end != nullptr, "the error text ends");
  require((status == TN_OK) == (end == error.message), "there is an error text exactly after a failure");
}

class Case {
 public:
  Case(const uint8_t* data, size_t size) : in_(data, size), m_(small(0, 6)), n_(small(1, rarely(20) ? 600 : 20)) {}

  void run() { in_.ConsumeBool() ? run_backward() : run_forward(); }

 private:
  // An input that has run out gives zeros: never what is rare, always what is usual.
  bool rarely(int percent) { return in_.ConsumeIntegralInRange<int>(0, 99) >= 100 - percent; }
  bool usually(int percent) { return !rarely(100 - percent); }
  int64_t small(int64_t low, int64_t high) { return in_.ConsumeIntegralInRange<int64_t>(low, high); }

  // Any number, often an extreme one.
  int64_t wild() {
    switch (small(0, 3)) {
      case 0: return small(-3, 40);
      case 1: return int64_t{1} << small(0, 62);
      case 2: return INT64_MAX - small(0, 3);
      default: return in_.ConsumeIntegral<int64_t>();
    }
  }
  float any_float() { return std::bit_cast<float>(in_.ConsumeIntegral<uint32_t>()); }
  tn_dtype dtype() { return usually(96) ? static_cast<tn_dtype>(small(1, 3)) : in_.ConsumeIntegral<int32_t>(); }

  tn_tensor matrix() {
    tn_tensor view = tn_matrix(nullptr, dtype(), m_, n_);
    if (rarely(30)) view.strides[0] += small(0, 9);
    if (rarely(20) && m_ > 0 && m_ % 2 == 0) {  // two levels of rows, the outer one further apart or interleaved
      const int64_t row = view.strides[0];
      const bool interleaved = in_.ConsumeBool();
      view.ndim = 3;
      view.shape[0] = 2;
      view.shape[1] = m_ / 2;
      view.shape[2] = n_;
      view.strides[0] = interleaved ? row : row * (m_ / 2) + small(0, 5);
      view.strides[1] = interleaved ? row * 2 : row;
      view.strides[2] = 1;
    }
    return distort(view);
  }
  tn_tensor weight() { return distort(tn_vector(nullptr, dtype(), n_)); }
  tn_tensor statistic() { return distort(tn_vector(nullptr, usually(95) ? tn_dtype{TN_F32} : dtype(), m_)); }

  tn_tensor distort(tn_tensor view) {
    while (rarely(5)) {
      const auto d = static_cast<size_t>(small(0, TN_MAX_DIMS - 1));
      switch (small(0, 2)) {
        case 0: view.ndim = static_cast<int32_t>(small(-1, 4)); break;
        case 1: view.shape[d] = wild(); break;
        default: view.strides[d] = wild(); break;
      }
    }
    return view;
  }

  // Gives a view its memory. An output may share an input's.
  void place(tn_tensor& view, bool output) {
    if (view.dtype == TN_DTYPE_NONE) return;
    const auto lead = static_cast<size_t>(small(0, 3));
    Block* shared = output && rarely(25) ? memory_.any_block(static_cast<size_t>(small(0, 9))) : nullptr;
    if (shared == nullptr || !memory_.put_into(*shared, view, lead))
      memory_.put(view, lead, in_.ConsumeIntegral<uint32_t>());
    if (rarely(3)) view.data = nullptr;
    if (rarely(3) && view.data != nullptr && lead > 0) view.data = static_cast<std::byte*>(view.data) - 1;
    if (output) memory_.allow(view);
  }

  const tn_exec* make_exec() {
    static tn_threads* const pools[2] = {make_pool(2), make_pool(3)};
    if (rarely(30)) return nullptr;
    exec_.struct_size = usually(97) ? sizeof(exec_) : static_cast<size_t>(wild());
    exec_.device = usually(97) ? tn_device_type{TN_CPU} : in_.ConsumeIntegral<int32_t>();
    exec_.device_index = usually(97) ? 0 : in_.ConsumeIntegral<int32_t>();
    exec_.stream = usually(97) ? nullptr : Memory::nowhere();
    exec_.isa = usually(97) ? static_cast<tn_isa>(small(0, 4)) : in_.ConsumeIntegral<int32_t>();
    exec_.programmatic = usually(97) ? 0 : wild();
    exec_.threads = usually(60) ? nullptr : pools[small(0, 1)];
    return &exec_;
  }

  template <typename Args>
  void set_options(Args& args) {
    args.struct_size = usually(97) ? sizeof(args) : static_cast<size_t>(wild());
    args.op = usually(97) ? static_cast<tn_op>(small(1, 2)) : in_.ConsumeIntegral<int32_t>();
    args.rounding = usually(80) ? tn_rounding{TN_ROUND_ONCE} : static_cast<tn_rounding>(small(-1, 2));
    args.offset = usually(80) ? 1 : any_float();
    args.in_place = usually(70) ? 0 : static_cast<uint32_t>(small(0, 255));
  }

  // `views` point into `args`: the inputs, of which there are `inputs`, then the outputs.
  template <typename Args, typename Sizes, typename Run>
  void call(Args& args, const std::vector<tn_tensor*>& views, size_t inputs, Sizes sizes_of, Run run_on) {
    const tn_exec* exec = make_exec();
    tn_error error{};
    tn_workspace sizes{};
    const tn_status planned = sizes_of(exec, Exact(args).get(), &sizes, &error);
    check_error(planned, error);

    for (size_t i = 0; i < views.size(); ++i) place(*views[i], i >= inputs);
    tn_workspace again{};
    require(sizes_of(exec, Exact(args).get(), &again, nullptr) == planned, "sizes do not depend on pointers");
    require(again.size == sizes.size && again.counters_size == sizes.counters_size, "sizes stay the same");
    if (!memory_.complete() || sizes.size > kMaxScratch) return;

    const size_t size = sizes.size - (rarely(5) && sizes.size > 0 ? 1 : 0);
    const auto lead = static_cast<size_t>(small(0, 63));  // scratch may have any alignment
    const std::unique_ptr<std::byte[]> scratch(new std::byte[lead + size]);
    const tn_workspace workspace{scratch.get() + lead, size, nullptr, 0};
    const bool none = sizes.size == 0 && in_.ConsumeBool();
    const tn_status status = run_on(exec, Exact(args).get(), none ? nullptr : &workspace, &error);
    check_error(status, error);
    require(planned == TN_OK || status != TN_OK, "what cannot be planned cannot be run");
    require(size == sizes.size || status != TN_OK, "too little scratch is refused");
    require(memory_.unharmed(status == TN_OK), "nothing but elements of outputs is written, and only on success");
  }

  void run_forward() {
    tn_forward_args args{};
    set_options(args);
    args.eps = usually(80) ? 1e-6F : any_float();
    if (usually(97)) args.x = matrix();
    if (rarely(40)) args.residual = matrix();
    if (usually(50)) args.weight = weight();
    if (rarely(30)) args.bias = weight();
    if (usually(80)) args.y = matrix();
    if (rarely(30)) args.residual_out = matrix();
    if (rarely(15)) args.mean = statistic();
    if (rarely(40)) args.rstd = statistic();
    call(args, {&args.x, &args.residual, &args.weight, &args.bias, &args.y, &args.residual_out, &args.mean, &args.rstd},
         4, tn_forward_workspace, tn_forward);
  }

  void run_backward() {
    tn_backward_args args{};
    set_options(args);
    args.x_dtype = usually(70) ? tn_dtype{TN_DTYPE_NONE} : dtype();
    if (usually(85)) args.dy = matrix();
    if (rarely(30)) args.ds = matrix();
    if (usually(97)) args.s = matrix();
    if (usually(60)) args.weight = weight();
    if (args.op == TN_LAYER_NORM || rarely(5)) args.mean = statistic();
    if (usually(95)) args.rstd = statistic();
    if (usually(80)) args.dx = matrix();
    if (rarely(20)) args.dresidual = matrix();
    if (args.weight.dtype != TN_DTYPE_NONE || rarely(5)) args.dweight = weight();
    if (rarely(30)) args.dbias = weight();
    call(args,
         {&args.dy, &args.ds, &args.s, &args.weight, &args.mean, &args.rstd, &args.dx, &args.dresidual, &args.dweight,
          &args.dbias},
         6, tn_backward_workspace, tn_backward);
  }

  FuzzedDataProvider in_;
  int64_t m_;
  int64_t n_;
  tn_exec exec_{};
  Memory memory_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Case(data, size).run();
  return 0;
}
