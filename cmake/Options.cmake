# Flags that every target of this project shares, as the interface target truenorm_options (never installed).
add_library(truenorm_options INTERFACE)
set(truenorm_cxx_flags -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  # Every operation is spelled out in the sources: the compiler may neither contract nor approximate.
  -ffp-contract=off)
target_compile_options(truenorm_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${truenorm_cxx_flags}>")
option(TRUENORM_WERROR "Warnings are errors" OFF)
if(TRUENORM_WERROR)
  # nvcc counts a variable as unused (177) in an instantiation whose `if constexpr` leaves its use out; g++ does not.
  target_compile_options(truenorm_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;--diag-suppress=177>")
endif()
if(TRUENORM_SANITIZE)
  # Lines for the reports; more debug information takes long to write and tells them nothing.
  set(sanitize -fsanitize=${TRUENORM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_compile_options(truenorm_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  target_link_options(truenorm_options INTERFACE -fsanitize=${TRUENORM_SANITIZE})
endif()
