// Which instruction sets this build has, which this machine runs, and their kernels.
#pragma once

#include "cpu/plan.hpp"
#include "truenorm/truenorm.h"

namespace truenorm::cpu {

// clang-format off
namespace scalar { const Kernels& kernels(); }
namespace avx2   { const Kernels& kernels(); }
namespace avx512 { const Kernels& kernels(); }
namespace neon   { const Kernels& kernels(); }
// clang-format on

bool isa_built(tn_isa isa) noexcept;
bool isa_available(tn_isa isa) noexcept;  // built, and this machine runs it

// The kernels of `isa`, TN_ISA_AUTO being the widest available; null where it is not available.
const Kernels* kernels_for(tn_isa isa) noexcept;

// For the length of a scope, the calling thread's floating-point mode is IEEE's default: nearest even, subnormals kept.
// Hosts flush subnormals to zero more often than one thinks (a library built with -ffast-math is enough).
class IeeeMode {
 public:
  IeeeMode() noexcept;
  ~IeeeMode();
  IeeeMode(const IeeeMode&) = delete;
  IeeeMode& operator=(const IeeeMode&) = delete;

 private:
  std::uint64_t saved_;
};

}  // namespace truenorm::cpu
