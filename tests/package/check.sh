#!/usr/bin/env bash
# The steps of the package tests (CMakeLists.txt beside this file calls them):
#
#   check.sh install BUILD | version VERSION | command VERSION
#   check.sh find_package|pkg_config|headers|readme CC CXX
#
# Environment: PREFIX where truenorm is installed, LIBDIR relative to it, LINK shared or static, CMAKE.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
strict=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
export PKG_CONFIG_PATH=$PREFIX/$LIBDIR/pkgconfig
pkg_config=(pkg-config)
[ "$LINK" = shared ] || pkg_config+=(--static)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Runs both example programs in a folder and compares what they print.
run_examples() {
  local program
  for program in rms_norm rms_norm_c; do
    "$1/$program" >"$scratch/printed.txt"
    diff "$top/examples/expected.txt" "$scratch/printed.txt"
  done
}

# Installs into one folder and moves that to another: nothing installed may depend on the prefix it was given.
check_install() {
  rm -rf "$PREFIX" "$PREFIX.staged"
  "$CMAKE" --install "$1" --prefix "$PREFIX.staged" >"$scratch/log"
  mv "$PREFIX.staged" "$PREFIX"
  if grep -rIl --fixed-strings -e "$top" -e "$PREFIX" "$PREFIX"; then
    echo "the files above name a folder of the build"
    exit 1
  fi
  (cd "$PREFIX" && find include -type f | sort) >"$scratch/headers.txt"
  (cd "$top" && find include -type f \( -name '*.h' -o -name '*.hpp' \) | sort) | diff - "$scratch/headers.txt"
  find "$PREFIX" -path '*/doc/truenorm/LICENSE' | grep -q .
}

check_version() {
  [ "$(pkg-config --modversion truenorm)" = "$1" ]
  grep -q "PACKAGE_VERSION \"$1\"" "$PREFIX/$LIBDIR/cmake/truenorm/truenormConfigVersion.cmake"
}

check_command() { "$PREFIX/bin/truenorm" --version | grep -F "$1"; }

check_find_package() {
  local flags="${strict[*]}"
  CC=$1 CXX=$2 "$CMAKE" -S "$top/examples" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$PREFIX" \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release
  "$CMAKE" --build "$scratch/build"
  run_examples "$scratch/build"
}

check_pkg_config() {
  make -C "$top/examples" CC="$1" CXX="$2" OUT="$scratch" CFLAGS="-O2 ${strict[*]}" CXXFLAGS="-O2 ${strict[*]}" \
    PKG_CONFIG="${pkg_config[*]}"
  run_examples "$scratch"
}

# Each header by itself, twice in one file; the C one as C11 too.
check_headers() {
  local header name
  for header in "$PREFIX"/include/truenorm/*; do
    name=truenorm/${header##*/}
    printf '#include <%s>\n#include <%s>\n' "$name" "$name" >"$scratch/header.source"
    "$2" -x c++ -std=c++20 -fsyntax-only "${strict[@]}" -I "$PREFIX/include" "$scratch/header.source"
    case $header in
      *.h) "$1" -x c -std=c11 -fsyntax-only -pedantic-errors -Wstrict-prototypes "${strict[@]}" \
        -I "$PREFIX/include" "$scratch/header.source" ;;
    esac
  done
}

# The README's program: the first block of C++ below its heading 'In C++'. A block of text right after it, if any, is
# what the program prints.
check_readme() {
  awk -v program="$scratch/readme.cpp" -v printed="$scratch/expected.txt" '
    /^#+ In C\+\+/ { below = 1; next }
    below && /^#/ && !out { exit }
    below && !out && /^```cpp/ && !programs { out = program; programs = 1; next }
    below && !out && /^```text/ && programs { out = printed; next }
    out && /^```/ { close(out); if (out == printed) exit; out = ""; next }
    out { print > out }' "$top/README.md"
  [ -s "$scratch/readme.cpp" ] || {
    echo "README.md has no block of C++ below a heading 'In C++'"
    exit 1
  }
  # shellcheck disable=SC2046
  "$2" -std=c++20 -O2 "${strict[@]}" -o "$scratch/readme" "$scratch/readme.cpp" \
    $("${pkg_config[@]}" --cflags --libs truenorm) -Wl,-rpath,"$PREFIX/$LIBDIR"
  "$scratch/readme" | tee "$scratch/printed.txt"
  [ ! -f "$scratch/expected.txt" ] || diff "$scratch/expected.txt" "$scratch/printed.txt"
}

step=$1
shift
"check_$step" "$@"
