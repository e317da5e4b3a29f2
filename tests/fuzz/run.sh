#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh PROGRAM... -- [-OPTION=VALUE...] [FORMAT...]
#
# Runs the fuzz targets, or those of the named formats, one after the other. Options are libFuzzer's
# and come after these defaults: -runs=1000000 -max_len=4096 -timeout=10 -rss_limit_mb=4096. An
# input that breaks a target is kept as zig-out/fuzz/FORMAT-*: give its path instead of a format to
# run just that.
set -eu

programs=
while [ "$1" != -- ]; do
  programs="$programs $1"
  shift
done
shift
options='-runs=1000000 -max_len=4096 -timeout=10 -rss_limit_mb=4096 -print_final_stats=1'
formats=
input=
for argument; do
  case $argument in
    -*) options="$options $argument" ;;
    */*) input=$argument ;;
    *) formats="$formats $argument" ;;
  esac
done

known=
for program in $programs; do
  known="$known ${program##*weir_fuzz_}"
done
for format in $formats; do
  case " $known " in
    *" $format "*) ;;
    *) echo "fuzz: $format: no such target; there are:$known" >&2; exit 2 ;;
  esac
done

out=zig-out/fuzz
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in $programs; do
  format=${program##*weir_fuzz_}
  case "$input" in
    '') ;;
    */"$format"-*) "$program" "$input"; exit ;;
    *) continue ;;
  esac
  case " $formats " in
    '  ' | *" $format "*) ;;
    *) continue ;;
  esac
  mkdir "$work/$format"
  echo "fuzz $format"
  # shellcheck disable=SC2086  # options are words
  if "$program" $options -artifact_prefix="$out/$format-" -verbosity=0 \
    -dict="tests/fuzz/$format.dict" "$work/$format" "tests/fuzz/corpus/$format" \
    2>"$work/log"; then
    sed -n 's/^stat::number_of_executed_units: */  inputs /p
            s/^stat::average_exec_per_sec: */  a second /p
            s/^stat::peak_rss_mb: */  MiB /p' "$work/log"
  else
    cat "$work/log" >&2
    echo "fuzz: $format: see above; the input is in $out" >&2
    exit 1
  fi
done
