// The checks of one call's arguments, one tensor at a time.
#pragma once

#include <span>

#include "api/error.hpp"
#include "api/overlap.hpp"
#include "spec/call.hpp"

namespace truenorm::api {

inline bool is_type(tn_dtype t) noexcept { return t == TN_F32 || t == TN_F16 || t == TN_BF16; }

// A tensor under its name in messages.
struct Named {
  const char* name;
  const tn_tensor& tensor;
  const Extent& extent;
};

// outputs[output] may be the very same view as inputs[input] where `flag` is set.
struct Permission {
  std::size_t output;
  std::size_t input;
  std::uint32_t flag;
  const char* name;
};

// The first check that fails sets `error` and makes every later one a no-op.
class Checker {
 public:
  // With `need_data`, pointers are checked as well.
  Checker(bool need_data, tn_error* error) noexcept : need_data_(need_data), error_(error) { succeed(error); }

  bool ok() const noexcept { return status_ == TN_OK; }
  tn_status status() const noexcept { return status_; }
  std::int64_t m() const noexcept { return m_; }
  std::int64_t n() const noexcept { return n_; }

  [[gnu::format(printf, 2, 3)]] void refuse(const char* format, ...) noexcept;

  // [M, N]. The first matrix of a call decides M and N. Absent is fine unless `required`.
  void matrix(const char* name, const tn_tensor& t, bool required, spec::Rows& out, Extent& extent) noexcept;

  // [count], contiguous. `what` says in messages what `count` is.
  void vector(const char* name, const tn_tensor& t, bool required, std::int64_t count, const char* what, spec::Vec& out,
              Extent& extent) noexcept;

  // [M], FP32.
  void statistic(const char* name, const tn_tensor& t, bool required, float*& out, Extent& extent) noexcept;

  // No output touches its own rows twice, another output, or an input, save where permitted.
  void memory(std::span<const Named> inputs, std::span<const Named> outputs, std::span<const Permission> permissions,
              std::uint32_t in_place) noexcept;

 private:
  bool present(const char* name, const tn_tensor& t, bool required) noexcept;
  void pointer(const char* name, const tn_tensor& t) noexcept;
  void apart(const Named& output, const Named& other, std::uint32_t in_place, const Permission* permission) noexcept;

  bool need_data_;
  tn_error* error_;
  tn_status status_ = TN_OK;
  const char* first_matrix_ = nullptr;
  std::int64_t m_ = 0;
  std::int64_t n_ = 0;
};

}  // namespace truenorm::api
