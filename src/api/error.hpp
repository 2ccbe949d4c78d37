// Statuses with their sentence.
#pragma once

#include "truenorm/truenorm.h"

namespace truenorm::api {

// Formats `error->message` (where there is one) as printf does, and returns `status`.
[[gnu::format(printf, 3, 4)]] tn_status fail(tn_error* error, tn_status status, const char* format, ...) noexcept;

inline tn_status succeed(tn_error* error) noexcept {
  if (error != nullptr) error->message[0] = '\0';
  return TN_OK;
}

}  // namespace truenorm::api
