#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh c|cpp|shared|cuda|cmake|zig|zig-net FOLDER PREFIX [ZIG]: builds an example outside the
# project's own build, in the empty FOLDER against what is installed in PREFIX, and runs it. Exit 77
# after a last line that says what is missing here.
set -eu
language=$1 folder=$2 prefix=$3 zig=${4:-zig}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

need() {
  command -v "$1" >/dev/null 2>&1 || { echo "no $1 here"; exit 77; }
}

# With the compiler $1, as every pkg-config user would, for a usual and for a --static link.
with_pkg_config() {
  need "$1"
  need pkg-config
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
  for static in '' --static; do
    # shellcheck disable=SC2046,SC2086  # lists of words
    "$@" $(pkg-config --cflags weir) -o "$folder/embed" $(pkg-config $static --libs weir)
    "$folder/embed"
  done
}

case $language in
  c) with_pkg_config gcc -std=c11 -Wall -Wextra -Werror "$here/embed.c" -lm ;;
  cpp) with_pkg_config g++ -std=c++17 -Wall -Wextra -Werror "$here/embed.cpp" ;;
  shared)
    # Engine and networks, and the symbols that the library promises: one that goes, or changes its
    # version, breaks programs that are built.
    need g++
    need pkg-config
    need nm
    export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
    # shellcheck disable=SC2046  # lists of words
    g++ -std=c++17 -Wall -Wextra -Werror -DWITH_NET "$here/embed.cpp" -o "$folder/embed" \
      $(pkg-config --cflags --libs weir_shared)
    "$folder/embed"
    nm -D --defined-only "$prefix/lib/shared/libweir.so.0" | sed 's/.* //; /^WEIR_/d' |
      LC_ALL=C sort >"$folder/symbols"
    if ! diff "$here/symbols" "$folder/symbols"; then
      echo "tests/embed/symbols is not what libweir.so has: add new lines to it; lines that are" \
        "missing need a new version in build/weir.map"
      exit 1
    fi
    ;;
  cuda)
    # CUDA's runtime is nvcc's, in an archive: nothing but the driver is looked for when it runs.
    need nvcc
    need pkg-config
    export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
    # shellcheck disable=SC2046  # lists of words
    nvcc -Werror all-warnings "$here/../../examples/engine_cuda.cu" -o "$folder/engine_cuda" \
      $(pkg-config --cflags --libs weir)
    if CUDA_VISIBLE_DEVICES='' "$folder/engine_cuda" >"$folder/said" 2>&1; then
      echo "it found a GPU where none is visible"
      exit 1
    fi
    grep 'engine_cuda: no GPU to run on (.*): engine.c is this for CPUs' "$folder/said"
    if nvidia-smi -L >/dev/null 2>&1; then "$folder/engine_cuda"; fi
    ;;
  cmake)
    need cmake
    need make
    need gcc
    cmake -S "$here/cmake" -B "$folder" -DCMAKE_C_COMPILER=gcc -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_C_FLAGS=-std=c11 -G 'Unix Makefiles'
    cmake --build "$folder"
    "$folder/embed"
    ;;
  zig | zig-net)
    cd "$here/zig"
    net=
    [ "$language" = zig ] || net=-Dnet
    "$zig" build $net --cache-dir "$folder/cache" --prefix "$folder" --error-style minimal
    "$folder/bin/embed"
    ;;
  *) echo "run.sh: $language: unknown language" >&2; exit 2 ;;
esac
