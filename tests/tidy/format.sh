#!/bin/sh
# SPDX-License-Identifier: MIT
# format.sh ZIG [--check]: formats the sources in place, or says which are not formatted.
set -eu
zig=$1
shift

version=14 # Debian 12's; others lay some lines out differently
for tool in clang-format-$version clang-format ''; do
  if [ -z "$tool" ]; then
    echo "fmt: clang-format $version is missing (Debian 12: apt-get install clang-format)" >&2
    exit 1
  fi
  "$tool" --version 2>/dev/null | grep -q "version $version\." && break
done

case "${1:-}" in
  '') set -- -i; zig_options='' ;;
  --check) set -- --dry-run --Werror; zig_options=--check ;;
  *) echo "fmt: $1: unknown option; --check only looks" >&2; exit 2 ;;
esac

failed=0
for folder in src tools bench tests kernels examples; do
  [ ! -d "$folder" ] ||
    find "$folder" -name '*.c' -o -name '*.h' -o -name '*.c[cu]' -o -name '*.cpp' -o -name '*.cuh'
done | sort | xargs "$tool" "$@" || failed=1
# shellcheck disable=SC2086  # empty or one word
"$zig" fmt $zig_options build.zig build tests/embed || failed=1
exit $failed
