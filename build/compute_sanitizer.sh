#!/bin/sh
# SPDX-License-Identifier: MIT
# compute_sanitizer.sh TOOL PROGRAM [ARGUMENT...]: runs a program under a tool of NVIDIA's
# compute-sanitizer (memcheck, racecheck, synccheck, initcheck). Fails where the program does, where
# the tool finds something, and where there is no compute-sanitizer. It is looked for in
# COMPUTE_SANITIZER, PATH, CUDA_HOME and the toolkit's usual places.
set -eu
tool=$1
shift
found=
for place in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer || :)" \
  "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
  /usr/local/cuda*/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer \
  /opt/cuda/bin/compute-sanitizer; do
  if [ -n "$place" ] && [ -x "$place" ]; then
    found=$place
    break
  fi
done
if [ -z "$found" ]; then
  echo "$tool: nothing was checked, there is no compute-sanitizer: it comes with the CUDA toolkit" \
    "(Debian and Ubuntu: cuda-sanitizer); put it into PATH, or name it in COMPUTE_SANITIZER" >&2
  exit 3
fi
# Kernels are checked, not calls: tests have calls fail on purpose, and check what comes of them.
# racecheck looks at Weir's kernels alone: it takes the asynchronous copies of cuDNN's for races.
# A racecheck of hazards that are only warnings (reads beside reads) is no failure.
case $tool in
  memcheck) set -- --report-api-errors no "$@" ;;
  racecheck) set -- --kernel-regex kns=weir_ "$@" ;;
esac
exec "$found" --tool "$tool" --error-exitcode 9 --print-limit 20 "$@"
