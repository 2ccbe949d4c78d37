#include "cpu/isa.hpp"

#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace truenorm::cpu {

#if defined(__x86_64__)
namespace {
// clang 14's __builtin_cpu_supports does not know this one; its registers are AVX's, whose support is asked for beside.
// Asked once: a virtual machine may take tens of microseconds over CPUID.
bool has_f16c() noexcept {
  static const bool answer = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return answer;
}
}  // namespace
#endif

bool isa_built(tn_isa isa) noexcept {
  switch (isa) {
    case TN_ISA_AUTO:
    case TN_ISA_SCALAR: return true;
#if defined(__x86_64__)
    case TN_ISA_AVX2:
    case TN_ISA_AVX512: return true;
#elif defined(__aarch64__)
    case TN_ISA_NEON: return true;
#endif
    default: return false;
  }
}

bool isa_available(tn_isa isa) noexcept {
  switch (isa) {
    case TN_ISA_AUTO:
    case TN_ISA_SCALAR: return true;
#if defined(__x86_64__)
    // These built-ins also ask the operating system whether it saves the registers.
    case TN_ISA_AVX2: return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
    case TN_ISA_AVX512:
      return isa_available(TN_ISA_AVX2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0;
#elif defined(__aarch64__)
    case TN_ISA_NEON: return true;
#endif
    default: return false;
  }
}

const Kernels* kernels_for(tn_isa isa) noexcept {
  if (!isa_available(isa)) return nullptr;
  switch (isa) {
    case TN_ISA_AUTO:
      for (const tn_isa wide : {TN_ISA_AVX512, TN_ISA_AVX2, TN_ISA_NEON}) {
        if (isa_available(wide)) return kernels_for(wide);
      }
      return &scalar::kernels();
    case TN_ISA_SCALAR: return &scalar::kernels();
#if defined(__x86_64__)
    case TN_ISA_AVX2: return &avx2::kernels();
    case TN_ISA_AVX512: return &avx512::kernels();
#elif defined(__aarch64__)
    case TN_ISA_NEON: return &neon::kernels();
#endif
    default: return nullptr;
  }
}

#if defined(__x86_64__)
namespace {
constexpr unsigned kIeee = 0x1f80;  // all exceptions masked, nearest even, no flushing
}
IeeeMode::IeeeMode() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kIeee); }
IeeeMode::~IeeeMode() { _mm_setcsr(static_cast<unsigned>(saved_)); }
#elif defined(__aarch64__)
IeeeMode::IeeeMode() noexcept : saved_(0) {
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
  __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
}
IeeeMode::~IeeeMode() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
IeeeMode::IeeeMode() noexcept : saved_(0) {}
IeeeMode::~IeeeMode() = default;
#endif

}  // namespace truenorm::cpu
