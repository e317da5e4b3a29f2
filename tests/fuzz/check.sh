#!/bin/sh
# SPDX-License-Identifier: MIT
# check.sh CLANG...: whether the first of these programs that is there can build fuzz targets; says
# what to install if not.
set -eu
clang=
for name; do
  clang=$(command -v "$name") && break
done
if [ -z "$clang" ]; then
  echo "fuzz: clang is missing: install it (Debian and Ubuntu: apt-get install clang)" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' '#include <stddef.h>' 'int LLVMFuzzerTestOneInput(const unsigned char *, size_t);' \
  'int LLVMFuzzerTestOneInput(const unsigned char *d, size_t n) { return d == 0 && n > 0; }' \
  >"$work/probe.c"
if ! "$clang" -fsanitize=fuzzer,address,undefined "$work/probe.c" -o "$work/probe" 2>"$work/log"
then
  sed 's/^/  /' "$work/log" >&2
  version=$("$clang" -dumpversion | cut -d. -f1)
  echo "fuzz: $clang cannot link libFuzzer: install its runtime (Debian and Ubuntu: apt-get" \
    "install libclang-rt-$version-dev; Debian 12's clang brings it)" >&2
  exit 1
fi
