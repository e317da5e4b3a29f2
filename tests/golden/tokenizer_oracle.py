# SPDX-License-Identifier: MIT
"""Compares `weir tokenize` with the library tokenizers on hostile text.

usage: python tests/golden/tokenizer_oracle.py --weir PATH [--seed S] [--megabytes 10] [FAMILY...]
       (tokenizers 0.23.3, numpy; llama3-full needs transformers, tiktoken and llama-models,
        qwen-full needs dashscope: their vocabularies are converted here and stay out of the tree)

Per family at least so many megabytes: every code point in several places, blanks and control
characters, emoji sequences, marks and syllables to compose, a megabyte without a blank, all added
tokens, whole and cut, broken UTF-8, and text like a corpus's. Numbers, spans and what they decode
to must be equal. Exit 1 if anything differs.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

import numpy
from tokenizers import AddedToken

import make_tokenizers as layouts


# ---- families ----

def vocabulary_of(package, path):
    from importlib import util

    from transformers.convert_slow_tokenizer import TikTokenConverter
    root = os.path.dirname(util.find_spec(package).origin)
    return TikTokenConverter(os.path.join(root, path)).tokenizer()


def llama3_full():
    tokenizer = vocabulary_of("llama_models", "llama3/tokenizer.model")
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|eot_id|>"] + ["<|reserved_special_token_%d|>" % i for i in range(251)]
    tokenizer.add_special_tokens([AddedToken(n, normalized=False) for n in names])
    return layouts.llama3_layout(tokenizer, "<|begin_of_text|>")


def qwen_full():
    tokenizer = vocabulary_of("dashscope", "resources/qwen.tiktoken")
    tokenizer.model.ignore_merges = False
    return layouts.qwen_layout(tokenizer, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                               ["<tool_call>", "</tool_call>", "<think>", "</think>"])


FAMILIES = dict(layouts.FAMILIES, **{"llama3-full": llama3_full, "qwen-full": qwen_full})


# ---- hostile text ----

def points():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def all_points(draw, _):
    """In order; each between letters, digits, blanks and signs; in any order."""
    some = points()
    yield "".join(map(chr, some)).encode()
    yield "".join("a%cb" % c for c in some[:0x3500]).encode()
    yield "".join("a%c 1%c\n%c%c'%c" % (c, c, c, c, c) for c in some if c < 0x20000).encode()
    draw.shuffle(some)
    yield "".join(map(chr, some)).encode()


def without_blank(draw, _):
    yield b"a" * (1 << 20)
    yield ("\u4e2d" * (1 << 18)).encode()
    yield bytes(draw.choices(b"etaoinshrdlu", k=1 << 20))
    yield b" " * (1 << 19) + b"x" + b"\n" * (1 << 19)
    yield b"<" * (1 << 17) + b"=" * (1 << 17) + b"9" * (1 << 17)
    yield ("a" + "\u0301\u0316\u0323" * (1 << 16)).encode()


def pick(draw, parts, count):
    return "".join(draw.choices(parts, k=count))


def blanks(draw, _):
    parts = list(" \t\r\n\v\f\0\x1b\x7f\x85\xa0\xad") + ["\u1680", "\u180e", "\u2003", "\u200b",
                                                         "\u2028", "\u202f", "\u3000", "\ufeff"]
    parts += ["a", "1", "'s", "'LL", ".", "\u017f", "'\u017f", "\u212a", "  ", "\r\n"] * 2
    for _ in range(4):
        yield pick(draw, parts, 60000).encode()


def emoji(draw, _):
    parts = ["\u200d", "\ufe0f", "\u20e3", "\U0001f3fb", "\U0001f3ff", "\u2764", "\u2640"]
    parts += [chr(draw.randrange(0x1f1e6, 0x1f200)) for _ in range(6)]
    parts += [chr(draw.randrange(0x1f300, 0x1fb00)) for _ in range(40)] + [" ", "ok", "3"]
    for _ in range(3):
        yield pick(draw, parts, 60000).encode()


def composing(draw, _):
    """Marks of every class, starters that compose, jamo; what newer Unicodes added."""
    import unicodedata
    marks = [chr(c) for c in points() if unicodedata.combining(chr(c))]
    starters = [chr(c) for c in points() if unicodedata.decomposition(chr(c))[:1] not in ("", "<")]
    parts = marks + starters + [p for s in starters for p in unicodedata.normalize("NFD", s)]
    parts += [chr(draw.randrange(0x1100, 0x1200)) for _ in range(900)]
    parts += [chr(draw.randrange(0xac00, 0xd7a4)) for _ in range(300)] + list(" ab1") * 50
    parts += [chr(c) for c in range(0x105c0, 0x10600)] + [chr(c) for c in range(0x11380, 0x113d4)]
    parts += [chr(c) for c in range(0x16d60, 0x16d70)] + [chr(c) for c in range(0x16100, 0x16130)]
    for _ in range(6):
        yield pick(draw, parts, 60000).encode()


def added(draw, tokenizer):
    names = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    parts = names + [n[:draw.randrange(len(n))] for n in names] + names[:40] * 8
    parts += [n.lower() for n in names[:20]]
    parts += [" ", "\n", "a", "1", "\u00e9", "e\u0301", "<|", "|>"] * 9
    for _ in range(4):
        yield pick(draw, parts, 20000).encode()


def broken(draw, _):
    sound = ["a", " ", "\n", "\u00e9", "\u4e2d", "\U0001f600", "\ufffd", "'s"]
    for _ in range(3):
        yield b"".join(draw.choice(sound).encode() if draw.random() < 0.5 else
                       bytes([draw.choice([draw.randrange(256), draw.randrange(128, 256)])])
                       for _ in range(100000))


def corpus(draw, _):
    while True:
        lines = layouts.corpus(draw.randrange(1 << 30), 60000)
        words = [chr(draw.randrange(0x21, 0x3100)) for _ in range(50)]
        yield "\n".join(line + draw.choice(["", "", " ", "\r", " " + draw.choice(words)])
                        for line in lines).encode()


KINDS = [all_points, without_blank, blanks, emoji, composing, added, broken, corpus]


def texts(draw, tokenizer, megabytes):
    made = 0
    for kind in KINDS:
        for data in kind(draw, tokenizer):
            yield kind.__name__, data
            made += len(data)
            if kind is corpus and made >= megabytes * 1e6:
                return


# ---- comparison ----

def run(weir, model, folder, data, *options):
    path = os.path.join(folder, "text")
    with open(path, "wb") as out:
        out.write(data)
    done = subprocess.run([weir, "tokenize", "--model", model, "--file", path, *options],
                          stdout=subprocess.PIPE, check=True)
    return done.stdout


def expected(tokenizer, data, special, as_text):
    """Spans as in make_tokenizers.judge, for long texts."""
    text, begins, ends = layouts.text_of(data)
    begins, ends = numpy.array(begins + [len(data)]), numpy.array([0] + ends)
    tokenizer.encode_special_tokens = as_text
    encoding = tokenizer.encode(text, add_special_tokens=special)
    offsets = numpy.array(encoding.offsets, dtype=numpy.int64).reshape(-1, 2)
    first, last = begins[offsets[:, 0]], ends[offsets[:, 1]]
    last = numpy.where(offsets[:, 0] == offsets[:, 1], first, last)
    return numpy.stack([numpy.array(encoding.ids, dtype=numpy.int64), first, last], axis=1), text


def compare(args, folder, family, tokenizer):
    draw = random.Random(args.seed)
    model = os.path.join(folder, family + ".json")
    tokenizer.save(model)
    total, differ, tokens = 0, 0, 0
    for number, (kind, data) in enumerate(texts(draw, tokenizer, args.megabytes)):
        special, as_text = number % 2 == 1, number % 3 == 2
        options = ["--spans"] + ["--add-special"] * special + ["--special-as-text"] * as_text
        wanted, _ = expected(tokenizer, data, special, as_text)
        lines = run(args.weir, model, folder, data, *options)
        got = numpy.fromstring(lines, dtype=numpy.int64, sep=" ").reshape(-1, 3)
        same = got.shape == wanted.shape and (got == wanted).all()
        skip = number % 2 == 0
        numbers = " ".join(map(str, wanted[:, 0])).encode()
        back = run(args.weir, model, folder, numbers, "--decode", *["--skip-special"] * skip)
        text = tokenizer.decode(wanted[:, 0].tolist(), skip_special_tokens=skip).encode()
        total, tokens = total + len(data), tokens + len(wanted)
        if same and back == text:
            continue
        differ += 1
        place = 0
        if not same:
            least = min(len(got), len(wanted))
            unequal = numpy.nonzero((got[:least] != wanted[:least]).any(axis=1))[0]
            place = unequal[0] if len(unequal) else least
            begin = int(wanted[min(place, len(wanted) - 1)][1])
            print("  %s %s: token %d at byte %d: %s, not %s; %r" % (
                family, kind, place, begin, got[place:place + 3].tolist(),
                wanted[place:place + 3].tolist(), data[max(0, begin - 20):begin + 20]))
        if back != text:
            place = next((i for i, (a, b) in enumerate(zip(back, text)) if a != b), -1)
            print("  %s %s: decoded byte %d: %r, not %r" % (
                family, kind, place, back[place - 10:place + 20], text[place - 10:place + 20]))
    print("%s: %d bytes, %d tokens, %d texts differ" % (family, total, tokens, differ))
    return differ == 0 and total >= args.megabytes * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    args = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for family in args.families:
            good = compare(args, folder, family, FAMILIES[family]()) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
