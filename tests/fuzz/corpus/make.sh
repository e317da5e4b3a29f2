#!/bin/sh
# SPDX-License-Identifier: MIT
# make.sh: writes the seeds that are not text, in this folder. The others are written by hand.
set -eu
cd "$(dirname "$0")"

# safetensors, whole: nothing; two numbers
printf '\10\0\0\0\0\0\0\0{}      ' >safetensors/empty
printf '8\0\0\0\0\0\0\0{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  \0\0\200?\0\0\0@' \
  >safetensors/two

# .npy, whole: versions 1 and 2
printf '\223NUMPY\1\0\72\0{"descr": "|u1", "fortran_order": False, "shape": (3,)}  \n\1\2\3' \
  >npy/version1
printf '\223NUMPY\2\0\72\0\0\0{"descr": "<i2", "fortran_order": False, "shape": (1,)}  \n\1\2' \
  >npy/version2

# IDX: bytes, big-endian integers and reals, eight dimensions, none of the data
printf '\0\0\10\1\0\0\0\3\1\2\3' >idx/bytes
printf '\0\0\14\2\0\0\0\2\0\0\0\1\0\0\0\1\377\377\377\377' >idx/integers
printf '\0\0\16\1\0\0\0\1@\11!\373TD-\30' >idx/real
printf '\0\0\11\10\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1x' >idx/deep
printf '\0\0\15\3\0\0\0\4\0\0\0\5\0\0\0\6' >idx/cut

# token files, without the middle of the header: two tokens of each width, none, a wrong count
printf '\210\3304\1\1\0\0\0\2\0\0\0\1\0\377\377' >tokens/two16
printf '\241\3314\1\7\0\0\0\2\0\0\0\1\0\0\0\377\377\377\377' >tokens/two32
printf '\210\3304\1\1\0\0\0\0\0\0\0' >tokens/none
printf '\210\3304\1\1\0\0\0\377\377\377\177\1\0' >tokens/count
