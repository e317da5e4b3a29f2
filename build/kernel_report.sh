#!/bin/sh
# SPDX-License-Identifier: MIT
# kernel_report.sh NVCC [FLAG...]: what every kernel of kernels/ takes of a multiprocessor, for each
# architecture of the flags. Fails if one spills registers into memory, or if one of the lists in
# the kernel maps is in no file. An empty NVCC is none: then it says so. Nothing is written.
set -eu
nvcc=$1
shift
if [ -z "$nvcc" ]; then
  echo "kernel-report: skipped, there is no nvcc (zig build -Dcuda-path=DIR says where it is)"
  exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for source in kernels/*/*.cu; do
  if ! "$nvcc" -fatbin "$@" -Isrc -Ikernels --resource-usage -o /dev/null "$source" >>"$log" 2>&1
  then
    cat "$log" >&2
    exit 1
  fi
done

maps='src/device/cuda_kernel_map.h src/net/cuda/kernel_map.h'
# shellcheck disable=SC2086  # several words
sed -n 's/^ *X(\([a-z0-9_]*\)).*/weir_\1/p' $maps | awk '
  # The list first, from standard input; then the log.
  FNR == NR { wanted[$1] = 1; next }
  /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2]; arch = quoted[4] }
  /bytes stack frame/ { stack = $1; spills = $5 + $9 }
  /Used [0-9]+ registers/ {
    if (!shown++) printf "%-20s %-8s %9s %12s %6s %6s\n",
      "kernel", "target", "registers", "shared bytes", "stack", "spills"
    shared = 0
    for (i = 1; i < NF; i++) if ($(i + 2) ~ /^smem/) shared = $i
    for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
    printf "%-20s %-8s %9d %12d %6d %6d\n", kernel, arch, registers, shared, stack, spills
    delete wanted[kernel]
    spilling += spills > 0
  }
  END {
    for (name in wanted) { print name ": in the list, but in no file"; missing++ }
    printf "%d kernels and targets, %d of them spill\n", shown, spilling
    exit shown == 0 || spilling > 0 || missing > 0
  }' - "$log"
