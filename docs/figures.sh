#!/bin/sh
# SPDX-License-Identifier: MIT
# figures.sh [--check] [WEIR]: what the pages print below a line '    $ weir …' is that command's
# output. Writes it anew, the picture of docs/schedules.md and what the README shows of its first
# command, which trains for some minutes; with --check it only looks, at those that do not depend on
# the machine. WEIR is zig-out/bin/weir.
set -eu
check=no
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
weir=${1:-zig-out/bin/weir}
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
status=0

# In the pages a line that ends with a backslash goes on in the next one.
for page in README.md docs/*.md; do
    awk -v weir="$weir" -v check="$check" '
        { line[NR] = $0 }
        function wanted(command) {
            if (command ~ /\.csv/) return 0 # a file that the page only speaks of
            return check == "no" || command ~ /^weir (simulate|schedule) /
        }
        END {
            for (i = 1; i <= NR; i++) {
                print line[i]
                if (line[i] !~ /^    \$ weir /) continue
                command = substr(line[i], 7)
                while (command ~ /\\$/) {
                    print line[++i]
                    sub(/\\$/, "", command)
                    command = command line[i]
                }
                if (!wanted(command)) continue
                sub(/^weir/, weir, command)
                command = command " 2>&1"
                while ((command | getline text) > 0) {
                    sub(/ +$/, "", text)
                    if (text ~ /^[ -~]*$/ && length(text) > 110) text = substr(text, 1, 109) "…"
                    print text == "" ? "" : "    " text
                }
                close(command)
                while (i < NR) {
                    ahead = i + 1
                    while (ahead < NR && line[ahead] == "") ahead++
                    if (line[ahead] !~ /^    / || line[ahead] ~ /^    \$ /) break
                    i = ahead
                }
            }
        }' "$page" > "$made/page"
    if cmp -s "$page" "$made/page"; then
        continue
    elif [ $check = yes ]; then
        diff "$page" "$made/page" >&2 || status=1
    else
        cp "$made/page" "$page"
    fi
done

"$weir" simulate --compare gpipe,1f1b,zb-v --workers 4 --chunks 8 --svg "$made/schedules.svg" \
    > "$made/text"
if [ $check = no ]; then
    cp "$made/schedules.svg" docs/schedules.svg
elif ! cmp "$made/schedules.svg" docs/schedules.svg >&2; then
    status=1
fi
# In the README from the line 'processor' to the line 'speed'.
if [ $check = no ]; then
    echo "training as the README's first command does" >&2
    {
        "$weir" doctor | grep -E '^(processor|cores|kernels) '
        echo
        "$weir" train --save "$made/gpt.safetensors" |
            awk '/^update [0-9]+: /, /^F forward/ { print }
                 /^validation / { print "" }
                 /^(validation|speed) / { print }'
    } > "$made/first"
    awk -v first="$made/first" '
        /^    processor  / {
            while ((getline text < first) > 0) print text == "" ? "" : "    " text
            inside = 1
        }
        !inside { print }
        /^    speed  / { inside = 0 }' README.md > "$made/page"
    cp "$made/page" README.md
fi
[ $status = 0 ] || echo "the pages print other figures: run docs/figures.sh" >&2
exit $status
