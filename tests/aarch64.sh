#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles for aarch64 and, under qemu, runs what decides bits there. Its last line says what was
# done, which follows from what this machine has:
#
# - libhwloc-dev, libjansson-dev, libpcre2-dev and libutf8proc-dev of arm64 and qemu-aarch64: tests
#   of digests and kernels run;
# - the libraries alone: the test program is linked;
# - neither: the two archives are compiled, with this machine's headers of the libraries.
#
# WEIR_ARM64_LIBRARIES names another folder than /usr/lib/aarch64-linux-gnu.
set -eu
cd "$(dirname "$0")/.."

libraries=${WEIR_ARM64_LIBRARIES:-/usr/lib/aarch64-linux-gnu}
work=.zig-cache/aarch64
names='hwloc jansson pcre2-8 utf8proc'
tests='digests/ scalar/ levels/ vector_neon/ kernel_conv/each_ kernels/vector_ kernels/addresses_
  kernels/accumulating_ kernels/a_rows_ kernels_bf16/a_teams_ kernels_bf16/weights_'

say() { printf 'aarch64: %s\n' "$*"; }
fail() { say "FAILED: $*"; exit 1; }

# build TARGET STEP [OPTION]
build() {
  # shellcheck disable=SC2086  # nothing, or one word
  ./zigw build "$2" -Dcuda=false -Dtarget="$1" ${3:-} \
    --search-prefix "$PWD/$work" --prefix "$work" ||
    fail "$2 did not build"
}

# A prefix of these libraries alone: the system's other headers are another processor's.
make_prefix() {
  rm -rf "$work"
  mkdir -p "$work/include/hwloc/autogen" "$work/lib"
  for folder in /usr/local/include /usr/include; do
    [ ! -e "$folder/hwloc.h" ] || cp -R "$folder/hwloc.h" "$folder/hwloc" "$work/include"
    [ ! -e "$folder/jansson.h" ] || cp "$folder/jansson.h" "$folder"/jansson_*.h "$work/include"
    [ ! -e "$folder/pcre2.h" ] || cp "$folder/pcre2.h" "$work/include"
    [ ! -e "$folder/utf8proc.h" ] || cp "$folder/utf8proc.h" "$work/include"
  done
  # Debian's, of either processor: what they say of sizes is the same.
  for config in /usr/include/*-linux-gnu/hwloc/autogen/config.h; do
    [ ! -e "$config" ] || cp "$config" "$work/include/hwloc/autogen"
  done
}

find_qemu() {
  for qemu in qemu-aarch64 qemu-aarch64-static; do
    ! command -v "$qemu" || return 0
  done
}

if [ "$(uname -m)" = aarch64 ]; then
  say 'not crossed to: this machine is one, and runs all tests itself'
  exit 0
fi
make_prefix
missing=''
for name in $names; do [ -e "$libraries/lib$name.so" ] || missing="$missing $name"; done
if [ -n "$missing" ]; then
  # Nothing is linked, but the compiler takes headers' folders only where it finds the library.
  for name in $names; do printf '!<arch>\n' >"$work/lib/lib$name.a"; done
  build aarch64-linux-gnu archives -Doptimize=Debug # nothing will run
  say "the archives compile; no tests: $libraries has not$missing"
  exit 0
fi
for name in $names; do cp -P "$libraries/lib$name".so* "$work/lib"; done
glibc=$(getconf GNU_LIBC_VERSION)
build "aarch64-linux-gnu.${glibc#glibc }" test-program
qemu=$(find_qemu)
if [ -z "$qemu" ]; then
  say 'the test program compiles; it did not run: there is no qemu-aarch64'
  exit 0
fi
# shellcheck disable=SC2086  # a list of words
"$qemu" "$work/bin/weir_tests" $tests >"$work/log" 2>&1 || {
  cat "$work/log"
  fail "tests under ${qemu##*/}"
}
for test in $tests; do
  grep -q "^ok $test" "$work/log" || fail "no test ran whose name begins with $test"
done
say "$(tail -n 1 "$work/log") under ${qemu##*/}"
