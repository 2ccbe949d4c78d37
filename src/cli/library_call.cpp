#include "cli/library_call.hpp"

#include <array>

#include "cli/options.hpp"

namespace truenorm::cli {
namespace {

// Pointers, so that views can be replaced.
std::array<tn_tensor*, 4> inputs_of(tn_forward_args& a) { return {&a.x, &a.residual, &a.weight, &a.bias}; }
std::array<tn_tensor*, 4> outputs_of(tn_forward_args& a) { return {&a.y, &a.residual_out, &a.mean, &a.rstd}; }
std::array<tn_tensor*, 6> inputs_of(tn_backward_args& a) { return {&a.dy, &a.ds, &a.s, &a.weight, &a.mean, &a.rstd}; }
std::array<tn_tensor*, 4> outputs_of(tn_backward_args& a) { return {&a.dx, &a.dresidual, &a.dweight, &a.dbias}; }

template <size_t kCount>
std::array<tn_tensor, kCount> values(const std::array<tn_tensor*, kCount>& tensors) {
  std::array<tn_tensor, kCount> copies{};
  for (size_t i = 0; i < kCount; ++i) copies[i] = *tensors[i];
  return copies;
}

tn_status ask(const tn_exec& exec, const tn_forward_args& args, tn_workspace& sizes, tn_error& error) {
  return tn_forward_workspace(&exec, &args, &sizes, &error);
}
tn_status ask(const tn_exec& exec, const tn_backward_args& args, tn_workspace& sizes, tn_error& error) {
  return tn_backward_workspace(&exec, &args, &sizes, &error);
}

tn_status call(const tn_exec& exec, const tn_forward_args& args, const tn_workspace* scratch, tn_error& error) {
  return tn_forward(&exec, &args, scratch, &error);
}
tn_status call(const tn_exec& exec, const tn_backward_args& args, const tn_workspace* scratch, tn_error& error) {
  return tn_backward(&exec, &args, scratch, &error);
}

// Comes first: it is where the library looks at the arguments.
template <class Args>
Scratch scratch_for(const tn_exec& exec, const Args& args) {
  tn_workspace sizes{};
  tn_error error{};
  require_ok(ask(exec, args, sizes, error), error);
  return {exec.device, sizes};
}

}  // namespace

template <class Args>
LibraryCall<Args>::LibraryCall(const tn_exec& exec, const Args& args)
    : exec_(exec), args_(args), scratch_(scratch_for(exec, args)) {
  if (exec_.device != TN_CUDA) return;
  image_ = MemoryImage(values(inputs_of(args_)), values(outputs_of(args_)));
  there_ = DeviceMemory(image_.size());
  for (tn_tensor* tensor : inputs_of(args_)) *tensor = image_.moved(*tensor, there_.data());
  for (tn_tensor* tensor : outputs_of(args_)) *tensor = image_.moved(*tensor, there_.data());
}

template <class Args>
void LibraryCall<Args>::run() {
  for (const auto& piece : image_.pieces()) upload(there_.data() + piece.offset, piece.host, piece.size);
  enqueue(exec_.stream);
  if (exec_.device != TN_CUDA) return;
  synchronize_device();
  for (const auto& piece : image_.pieces()) {
    if (piece.written) download(piece.host, there_.data() + piece.offset, piece.size);
  }
}

template <class Args>
void LibraryCall<Args>::enqueue(void* stream) {
  tn_exec exec = exec_;
  exec.stream = stream;
  tn_error error{};
  require_ok(call(exec, args_, scratch_.workspace(), error), error);
}

template class LibraryCall<tn_forward_args>;
template class LibraryCall<tn_backward_args>;

}  // namespace truenorm::cli
