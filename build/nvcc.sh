#!/bin/sh
# SPDX-License-Identifier: MIT
# nvcc.sh NVCC [ARGUMENT...]: runs it so that images are as small as they can be, a fifth. It takes
# a way of packing that only drivers as new as CUDA 13 are sure to know; the images of an older nvcc
# are for older drivers too, and stay as they are.
set -eu
nvcc=$1
shift
release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
if [ "${release:-0}" -ge 13 ]; then
  set -- --compress-mode=size "$@"
fi
exec "$nvcc" "$@"
