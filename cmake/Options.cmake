# Flags that every target of this project shares, as the interface target truenorm_options (never installed).
add_library(truenorm_options INTERFACE)
target_compile_options(truenorm_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  # Every operation is spelled out in the sources: the compiler may neither contract nor approximate.
  -ffp-contract=off)
option(TRUENORM_WERROR "Warnings are errors" OFF)
if(TRUENORM_WERROR)
  target_compile_options(truenorm_options INTERFACE -Werror)
endif()
if(TRUENORM_SANITIZE)
  target_compile_options(truenorm_options INTERFACE
    -fsanitize=${TRUENORM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(truenorm_options INTERFACE -fsanitize=${TRUENORM_SANITIZE})
endif()
