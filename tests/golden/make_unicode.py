# SPDX-License-Identifier: MIT
"""Writes tools/text/unicode_runs.c: what the pinned `tokenizers` takes every code point for.

usage: python tests/golden/make_unicode.py    (tokenizers 0.23.3, unicodedata2 18.0; the file is
       committed)

Categories and spaces are those of its regular expressions, numbers those of its Digits. Its
normalization knows an older Unicode than those: a code point is active where NFC may change it or
what stands before it, and inert where a newer Unicode says that it is active and tokenizers does
not. A code point's normalization never changes once it is assigned, so that active and inert ones
hold for every library that is not older than tokenizers.
"""
import os

import unicodedata2 as newest
from tokenizers import Regex, __version__, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Co Cn").split()
SPACE, NUMERIC, ACTIVE, INERT = 1, 2, 4, 8
LAST = 0x10FFFF
PLACE = os.path.join(os.path.dirname(__file__), "../../tools/text/unicode_runs.c")

ALL = [c for c in range(LAST + 1) if not 0xD800 <= c < 0xE000]
nfd, nfc = normalizers.NFD(), normalizers.NFC()


def members(pre_tokenizer):
    """The code points that a splitter leaves."""
    found = set()
    for begin in range(0, len(ALL), 4096):
        some = ALL[begin:begin + 4096]
        for _, (first, end) in pre_tokenizer.pre_tokenize_str("".join(map(chr, some))):
            found.update(some[first:end])
    return found


def matching(pattern):
    return members(pre_tokenizers.Split(Regex(pattern), "removed", invert=True))


def isolated_numbers():
    """Digits isolates them: one between two letters becomes a piece of its own."""
    splitter = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in ALL if len(splitter.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def reorders(point):
    """Whether tokenizers moves a mark of the newest Unicode as that does."""
    below = newest.combining(chr(point)) < 240
    text = "a\u0345" + chr(point) if below else "a" + chr(point) + "\u0334"
    return nfd.normalize_str(text) == newest.normalize("NFD", text)


def normalization():
    active, inert, firsts, strangers = set(range(0x1161, 0x1176)), set(), set(), set()
    active |= set(range(0x11A8, 0x11C3))  # vowels and ends of Hangul syllables
    for point in ALL:
        text = chr(point)
        if newest.combining(text):
            (active if reorders(point) else inert).add(point)
        if newest.normalize("NFC", text) != text:
            active.add(point)
        whole = newest.normalize("NFD", text)
        if whole != nfd.normalize_str(text):
            inert.add(point)
        parts = newest.decomposition(text).split()
        if len(parts) != 2 or parts[0][0] == "<" or newest.normalize("NFC", whole) != text:
            continue
        pair = "".join(chr(int(part, 16)) for part in parts)
        if nfc.normalize_str(pair) == text:
            firsts.add(pair[0])
            active.add(ord(pair[1]))
        else:  # its first part meets nothing
            strangers.add(pair[0])
    assert not strangers & firsts
    inert |= set(map(ord, strangers))
    for point in ALL:  # what is neither is left alone by both
        if point not in active | inert:
            text = chr(point)
            assert nfc.normalize_str(text) == newest.normalize("NFC", text) == text
    return active - inert, inert


def main():
    kinds = [None] * (LAST + 1)
    for number, category in enumerate(CATEGORIES):
        for point in matching(r"\p{%s}" % category):
            assert kinds[point] is None, hex(point)
            kinds[point] = number
    for point in range(0xD800, 0xE000):  # never in a text
        kinds[point] = CATEGORIES.index("Cn")
    spaces, numbers = matching(r"\s"), isolated_numbers()
    white = members(pre_tokenizers.WhitespaceSplit())
    assert spaces == set(ALL) - white
    active, inert = normalization()
    runs, before = [], None
    for point in range(LAST + 1):
        marks = (SPACE * (point in spaces) | NUMERIC * (point in numbers) |
                 ACTIVE * (point in active) | INERT * (point in inert))
        now = kinds[point] << 4 | marks
        if now != before:
            runs.append(point << 9 | now)
        before = now
    lines, line = [], "   "
    for run in runs:
        word = " 0x%x," % run
        if len(line) + len(word) > 100:
            lines, line = lines + [line], "   "
        line += word
    with open(PLACE, "w", encoding="ascii") as out:
        out.write("/* SPDX-License-Identifier: MIT */\n")
        out.write("/* Written by tests/golden/make_unicode.py with tokenizers %s: see "
                  "unicode.h. */\n" % __version__)
        out.write('#include "text/unicode.h"\n\n/* clang-format off */\n')
        out.write("const uint32_t unicode_runs[] = {\n%s\n};\n/* clang-format on */\n"
                  % "\n".join(lines + [line]))
        out.write("const uint32_t unicode_run_count = sizeof unicode_runs / "
                  "sizeof unicode_runs[0];\n")
    print(len(runs), "runs,", len(active), "active,", len(inert), "inert")


if __name__ == "__main__":
    main()
