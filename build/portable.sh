#!/bin/sh
# SPDX-License-Identifier: MIT
# portable.sh FOLDER RPATH PROGRAM... -- LIBRARY...: makes FOLDER anew: programs in bin/, in lib/
# the libraries and all that a program needs but glibc's, the benches' peers in peers/, and what
# build/portable/ holds. RPATH is the program of build/rpath.c. Fails above 60 MiB, where a library
# is not found, and where a program refers to this folder.
set -eu
limit_kib=$((60 * 1024))
folder=$1
rpath=$2
shift 2
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib" "$folder/peers"

into=bin
for file in "$@"; do
  if [ "$file" = -- ]; then
    into=lib
    continue
  fi
  name=$(basename "$file")
  case $name in
    weir_tools) name=weir ;;
  esac
  cp "$file" "$folder/$into/$name"
done
cp build/portable/run build/portable/README build/compute_sanitizer.sh LICENSE "$folder"
cp bench/peers/*.py "$folder/peers"
chmod +x "$folder/run"
"$rpath" "$folder"/bin/*

# glibc's own parts must be the kernel's machine's; all of them have its names.
for program in "$folder"/bin/*; do
  ldd "$program"
done | awk '/=>/ { print $1, $3 }' | sort -u | while read -r name path; do
  case $name in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.*) continue ;;
    ld-linux* | linux-vdso*) continue ;;
  esac
  case $path in
    /*) [ -e "$folder/lib/$name" ] || cp -L "$path" "$folder/lib/$name" ;;
    *) echo "portable: $name was not found: install what it comes with" >&2 && exit 1 ;;
  esac
done

for program in "$folder"/bin/*; do
  if ldd "$program" | awk '/=>/ { print $3 }' | grep -v "^$folder/" |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv)\.so\.'; then
    echo "portable: $program takes that from this machine" >&2
    exit 1
  fi
done

here=$(pwd)
for file in "$folder"/bin/* "$folder"/lib/libweir*; do
  if grep -qF "$here" "$file"; then
    echo "portable: $file refers to $here" >&2
    exit 1
  fi
done

size_kib=$(du -sk --apparent-size "$folder" | cut -f1)
echo "portable: $folder, $((size_kib / 1024)) MiB"
if [ "$size_kib" -gt "$limit_kib" ]; then
  echo "portable: more than $((limit_kib / 1024)) MiB; the largest are:" >&2
  du -ak --apparent-size "$folder" | sort -rn | sed -n '2,8p' >&2
  exit 1
fi
