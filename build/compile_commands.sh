#!/bin/sh
# SPDX-License-Identifier: MIT
# compile_commands.sh C_FLAGS... -- CPP_FLAGS...: writes compile_commands.json, by which clangd and
# other tools know how each file is compiled. Kernels (.cu) stand in it as the emulation compiles
# them: as C++ for the host.
set -eu

c='' cpp='' after=0
for flag; do
  if [ "$flag" = -- ]; then after=1
  elif [ $after = 0 ]; then c="$c\"$flag\", "
  else cpp="$cpp\"$flag\", "; fi
done

# The project's .c, .cu and .cc, but for programs of other build systems.
list_sources() {
  find src tools bench tests kernels examples \
    \( -name .zig-cache -o -path tests/embed -o -path 'examples/*.cu' \) -prune -o \
    -type f \( -name '*.c' -o -name '*.cu' -o -name '*.cc' \) -print | sort
}

write_entries() {
  comma=''
  list_sources | while read -r file; do
    case $file in
      *.c) flags=$c ;;
      *) flags="\"-xc++\", $cpp" ;;
    esac
    for folder in src "${file%%/*}" tools tests tests/fake_cuda kernels; do
      flags="$flags\"-I$folder\", "
    done
    printf '%s{"directory": "%s", "file": "%s",\n "arguments": ["clang", %s"-c", "%s"]}' \
      "$comma" "$PWD" "$file" "$flags" "$file"
    comma=',
'
  done
}

partial=compile_commands.json.partial
{ echo '['; write_entries; echo; echo ']'; } >$partial
mv $partial compile_commands.json
echo "compile_commands.json: $(grep -c '"file"' compile_commands.json) files"
