#!/bin/sh
# SPDX-License-Identifier: MIT
# nvcc.sh NVCC ARCHITECTURES [ARGUMENT...]: runs it for those of the architectures ("80 90 100")
# that it knows, with PTX of the newest for GPUs that come later. CUDA 12.0 is the least: what is
# older says what to do. --facts instead of arguments prints which CUDA it is and for which
# architectures, as members of struct weir__cuda_image.
#
# Images are as small as they can be, a fifth. That way of packing is one that only drivers as new
# as CUDA 13 are sure to know; the images of an older nvcc are for older drivers too, and stay as
# they are.
set -eu
nvcc=$1
wanted=$2
shift 2
release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
major=${release%.*}
if [ "${major:-0}" -lt 12 ]; then
  echo "nvcc.sh: $nvcc is of CUDA ${release:-unknown}, and the kernels take 12.0 or newer:" \
    "install it, name its folder by -Dcuda-path=DIR, or leave them out by -Dcuda=false" >&2
  exit 1
fi

known=" $("$nvcc" --list-gpu-arch | tr '\n' ' ')"
architectures=
for architecture in $wanted; do
  case $known in *" compute_$architecture "*) ;; *) continue ;; esac
  architectures="$architectures$architecture "
done
if [ -z "$architectures" ]; then
  echo "nvcc.sh: $nvcc is for none of the architectures $wanted: name another toolkit's folder by" \
    "-Dcuda-path=DIR" >&2
  exit 1
fi
architectures=${architectures% }
newest=${architectures##* }

if [ "${1:-}" = --facts ]; then
  printf '%d, "%s+",\n' $((major * 1000 + ${release#*.} * 10)) "$architectures"
  exit
fi
for architecture in $architectures; do
  code=sm_$architecture
  [ "$architecture" != "$newest" ] || code="[$code,compute_$architecture]"
  set -- "$@" -gencode "arch=compute_$architecture,code=$code"
done
[ "$major" -lt 13 ] || set -- --compress-mode=size "$@"
exec "$nvcc" "$@"
