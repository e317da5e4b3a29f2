#!/bin/sh
# SPDX-License-Identifier: MIT
# kernel_report.sh NVCC ARCHITECTURES OLDER [FLAG...]: what every kernel of kernels/ takes of a
# multiprocessor, for each architecture; and beside it what it takes in the images for older
# drivers, which OLDER makes: an nvcc, or a folder with NVRTC; empty: none. Fails if one spills
# registers into memory, or if one of the lists in the kernel maps is in no file. An empty NVCC is
# none: then it says so. Nothing is written.
set -eu
nvcc=$1
architectures=$2
older=$3
shift 3
if [ -z "$nvcc" ]; then
  echo "kernel-report: skipped, there is no nvcc (zig build -Dcuda-path=DIR says where it is)"
  exit 0
fi

log=$(mktemp)
older_log=$(mktemp)
trap 'rm -f "$log" "$older_log"' EXIT

# compile COMPILER SOURCE [FLAG...]
compile() {
  compiler=$1
  source=$2
  shift 2
  if [ -d "$compiler" ]; then
    python3 build/nvrtc.py "$compiler" "$architectures" --usage "$source"
  else
    sh build/nvcc.sh "$compiler" "$architectures" -fatbin "$@" -Isrc -Ikernels --resource-usage \
      -o /dev/null "$source"
  fi
}

for source in kernels/*/*.cu; do
  if ! compile "$nvcc" "$source" "$@" >>"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  [ -n "$older" ] || continue
  if ! compile "$older" "$source" "$@" >>"$older_log" 2>&1; then
    cat "$older_log" >&2
    exit 1
  fi
done

maps='src/device/cuda_kernel_map.h src/net/cuda/kernel_map.h'
# shellcheck disable=SC2086  # several words
sed -n 's/^ *X(\([a-z0-9_]*\)).*/weir_\1/p' $maps | awk -v compared="$older" '
  # The list first, from standard input; then the logs.
  FNR == 1 { files++ }
  files == 1 { wanted[$1] = 1; next }
  { sub(/^ptxas *\. */, "") } # NVRTC says so before a line that goes on
  /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2]; arch = quoted[4] }
  /bytes stack frame/ { stack = $1; spills = $5 + $9 }
  /Used [0-9]+ registers/ {
    shared = 0
    for (i = 1; i < NF; i++) if ($(i + 2) ~ /^smem/) shared = $i
    for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
    row = sprintf("%9d %12d %6d %6d", registers, shared, stack, spills)
    if (files == 2) {
      order[++shown] = kernel " " arch
      rows[kernel, arch] = row
      delete wanted[kernel]
    } else {
      others[kernel, arch] = row
      other_count++
    }
    taken[files, kernel, arch] = registers
    spilling += spills > 0
  }
  END {
    head = "registers shared bytes  stack spills"
    printf "%-28s %-7s %s%s\n", "kernel", "target", head, compared != "" ? "  older: " head : ""
    for (n = 1; n <= shown; n++) {
      split(order[n], at, " ")
      printf "%-28s %-7s %s", at[1], at[2], rows[at[1], at[2]]
      if (compared != "") printf "         %s", others[at[1], at[2]]
      printf "\n"
      if (compared != "" && !((at[1], at[2]) in others)) {
        print at[1] ", " at[2] ": not in the older images"
        missing++
      }
      more += taken[3, at[1], at[2]] > taken[2, at[1], at[2]]
      fewer += taken[3, at[1], at[2]] < taken[2, at[1], at[2]]
    }
    for (name in wanted) { print name ": in the list, but in no file"; missing++ }
    printf "%d kernels and targets, %d of them spill\n", shown + other_count, spilling
    if (compared != "") printf "older images: %d take more registers, %d fewer\n", more, fewer
    exit shown == 0 || spilling > 0 || missing > 0
  }' - "$log" "$older_log"
