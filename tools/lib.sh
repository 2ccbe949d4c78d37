# Sourced by the scripts in this folder: where things are, which compiler is used, and one line per step.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
BUILD_TYPE=${BUILD_TYPE:-Release}
LOGS=$ROOT/build/log
# A message of the tools we call is matched below, so it must be in English.
export LC_ALL=C.UTF-8

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

mkdir -p "$LOGS" 2>/dev/null || die "cannot write to $ROOT/build: is the disk full, or the folder another user's?"

# step LABEL COMMAND...: runs the command with its output in a log, and prints one line with the time it took. On a
# terminal the log's last line is shown meanwhile. A failure shows the end of the log and is returned.
step() {
  local label=$1 log start ticker=
  shift
  log=$LOGS/$(tr -cs 'a-z0-9' '-' <<<"${label,,}" | sed 's/^-//; s/-$//').log
  start=$(date +%s%N)
  printf '  %-66s' "$label"
  if [ -t 1 ]; then
    (while sleep 1; do printf '\r  %-66.66s\033[K' "$label: $(tail -n 1 "$log" 2>/dev/null)"; done) &
    ticker=$!
    trap 'kill "$ticker" 2>/dev/null || true' EXIT
  fi
  local status=0
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ -n "$ticker" ]; then
    { kill "$ticker" && wait "$ticker"; } 2>/dev/null || true
    trap - EXIT
    printf '\r  %-66s\033[K' "$label"
  fi
  if [ "$status" = 0 ]; then
    printf '%7s s\n' "$(seconds_since "$start")"
    return 0
  fi
  printf ' failed\n'
  if grep -qE 'No space left on device' "$log"; then
    printf '%s: the disk is full.\n' "$label" >&2
  else
    tail -n "${STEP_TAIL:-40}" "$log" | sed 's/^/    /' >&2
  fi
  printf '%s failed; all of its output: %s\n' "$label" "${log#"$ROOT"/}" >&2
  return "$status"
}

# seconds_since NANOSECONDS: with one decimal.
seconds_since() {
  local tenths=$((($(date +%s%N) - $1) / 100000000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# compiler_ok COMMAND: can it compile C++20 as used here (g++ >= 12 or clang >= 14)?
compiler_ok() {
  local version
  version=$(printf '__clang_major__ __GNUC__\n' | "$1" -E -P -x c++ -std=c++20 - 2>/dev/null | tail -n 1) || return 1
  case $version in
    __clang_major__\ *) [ "${version#* }" -ge 12 ] ;;
    [0-9]*) [ "${version%% *}" -ge 14 ] ;;
    *) return 1 ;;
  esac 2>/dev/null &&
    printf '#include <concepts>\n#include <span>\n' | "$1" -fsyntax-only -x c++ -std=c++20 - 2>/dev/null
}

# Prints $CXX where it is set, else the first compiler that will do; nothing where there is none.
find_compiler() {
  local candidate
  if [ -n "${CXX:-}" ]; then
    if compiler_ok "$CXX"; then printf '%s\n' "$CXX"; fi
    return 0
  fi
  for candidate in g++ g++-{15,14,13,12} clang++ clang++-{21,20,19,18,17,16,15,14}; do
    if command -v "$candidate" >/dev/null && compiler_ok "$candidate"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
}

# configure_and_build LABEL FOLDER CMAKE-ARGUMENT...: configures this project (or $SOURCE) only when the arguments have
# changed (the build itself notices changed CMake files), then builds $TARGETS, or all.
configure_and_build() {
  local label=$1 folder=$2
  shift 2
  if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/.arguments" 2>/dev/null)" != "$ROOT $*" ]; then
    rm -f "$folder/CMakeCache.txt" "$folder/.arguments"
    step "configure $label" cmake -S "${SOURCE:-.}" -B "$folder" -G Ninja "$@" || return
    printf '%s' "$ROOT $*" >"$folder/.arguments"
  fi
  # shellcheck disable=SC2086  # several targets, or none, which is all of them
  step "build $label" cmake --build "$folder" -j "$JOBS" ${TARGETS:+--target $TARGETS}
}
