# SPDX-License-Identifier: MIT
"""Writes tests/golden/tokenizers/: small tokenizers in the layouts of five families, trained on
text that is made here, and what the library makes of hostile text with them, for tests/text.

usage: python tests/golden/make_tokenizers.py    (tokenizers 0.23.3; the files are committed)

FAMILY.json is a tokenizer.json. FAMILY.golden holds, per case, a line of JSON: the text's bytes in
hexadecimal, options of encoding, numbers, spans in bytes, and the text that they decode to.
"""
import codecs
import json
import os
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

PLACE = os.path.join(os.path.dirname(__file__), "tokenizers")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SYLLABLES = ("ka lo mi ren ta su el an or ti da ve no pra in ster um qui za ler fo th er on "
             "\u00e9t \u00fcb \u0434\u043e \u043c\u0438 \u4e2d \u56fd \u3042 \ud55c").split()


def corpus(seed=1, words=20000):
    """Words of syllables, a few of them often; numbers, code, contractions, blanks."""
    draw = random.Random(seed)
    known = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(400)]
    lines, line = [], []
    for _ in range(words):
        word = known[min(int(draw.paretovariate(0.7)) - 1, 399)]
        kind = draw.random()
        if kind < 0.1:
            word = word.capitalize()
        elif kind < 0.15:
            word += draw.choice(["'s", "'ll", "'t", "'re"])
        elif kind < 0.2:
            word = str(draw.randrange(10 ** draw.randint(1, 6)))
        elif kind < 0.25:
            word = draw.choice(["x = (y + 1);", "if (a) {", "}", "  return", "\t// ", "<b>", "--"])
        line.append(word + draw.choice(["", "", "", ",", ".", "!"]))
        if draw.random() < 0.1:
            lines.append(" ".join(line))
            line = []
    return lines


def train(tokenizer, specials, size, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(specials=("<|endoftext|>",), prefix=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=prefix)
    train(tokenizer, list(specials), 600, pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_tokens([AddedToken("caf\u00e9", normalized=True), AddedToken(" \u00a0 ")])
    return tokenizer


def llama3_layout(tokenizer, begin):
    tokenizer.pre_tokenizer = split(LLAMA3)
    tokenizer.decoder = decoders.ByteLevel()
    number = tokenizer.token_to_id(begin)
    template = processors.TemplateProcessing(single=begin + " $A", pair=begin + " $A " + begin +
                                             ":1 $B:1", special_tokens=[(begin, number)])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), template])
    return tokenizer


def llama3():
    begin = "<|begin_of_text|>"
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = split(LLAMA3)
    train(tokenizer, [], 600, pre_tokenizers.ByteLevel.alphabet())
    names = [begin, "<|end_of_text|>"] + ["<|reserved_special_token_%d|>" % i for i in range(12)]
    tokenizer.add_special_tokens([AddedToken(n, normalized=False, special=True) for n in names])
    return llama3_layout(tokenizer, begin)


def qwen_layout(tokenizer, specials, others):
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split(QWEN)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False, add_prefix_space=False,
                                                    use_regex=False)
    tokenizer.add_special_tokens([AddedToken(n, normalized=False) for n in specials])
    tokenizer.add_tokens([AddedToken(n, normalized=False) for n in others])
    return tokenizer


def qwen():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split(QWEN)
    train(tokenizer, [], 600, pre_tokenizers.ByteLevel.alphabet())
    qwen_layout(tokenizer, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                ["<tool_call>", "</tool_call>", "<think>", "</think>"])
    tokenizer.add_tokens([AddedToken("e\u0301t\u00c5", normalized=True)])
    return tokenizer


def smollm():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>"]
    # Like the published one, which lacks bytes that its text did not have.
    return train(tokenizer, specials, 600, sorted(pre_tokenizers.ByteLevel.alphabet())[:-20])


def llama2():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                 normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581?[^\u2581]+"), "isolated")
    specials = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    train(tokenizer, specials, 700, [])
    # Only the first three are special, and words are not split.
    wanted = json.loads(tokenizer.to_str())
    wanted["pre_tokenizer"] = None
    wanted["added_tokens"] = wanted["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(wanted))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


FAMILIES = {"gpt2": gpt2, "gpt2-prefix": lambda: gpt2(prefix=True), "llama3": llama3, "qwen": qwen,
            "smollm": smollm, "llama2": llama2}


# ---- what they make of text ----

def text_of(data):
    """The text with U+FFFD for what is broken, and where each character begins and ends."""
    broken = []

    def note(error):
        broken.append((error.start, error.end))
        return "\ufffd", error.end

    codecs.register_error("note", note)
    text = data.decode("utf-8", errors="note")
    begins, ends, at, seen = [], [], 0, 0
    for character in text:
        size = len(character.encode())
        if seen < len(broken) and broken[seen][0] == at:
            size = broken[seen][1] - at
            seen += 1
        begins.append(at)
        at += size
        ends.append(at)
    assert at == len(data)
    return text, begins, ends


def judge(tokenizer, data, special=False, as_text=False):
    """Numbers, spans in bytes, text that comes back."""
    text, begins, ends = text_of(data)
    begins.append(len(data))
    tokenizer.encode_special_tokens = as_text
    encoding = tokenizer.encode(text, add_special_tokens=special)
    spans = [(begins[a], begins[a] if a == b else ends[b - 1]) for a, b in encoding.offsets]
    return encoding.ids, spans, tokenizer.decode(encoding.ids, skip_special_tokens=False)


def cases():
    draw = random.Random(7)
    texts = ["", " ", "a", "Hello, world! It's 1234567 o'clock.", "I'LL we\u017f 'S 'RE \u212a",
             "  two\n\n three\r\n\r\n   four\t\t\tx  ",
             "caf\u00e9 cafe\u0301 e\u0301t\u00c5 e\u0301tA\u030a",
             "<|endoftext|> <|im_start|>user<|im_end|><|begin_of_text|><s>x</s><|im",
             " \u00a0  \u00a0 ",
             "\u1100\u1161\u11a8 \uac00\u11a8 \u0958 \u0344 a\u0316\u0301\u0300 \U000105d2\u0307",
             "a\u0344b \U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd \U0001f1e9\u2764\ufe0f",
             "\u180e \u0085 \u200b \ufeff \u2028 \u3000 \u00ad\x00\x01\x1f\x7f",
             "\u0661\u0662 \u00b2 \u2167 \u4e00",
             "a\u08ca\u0316b \U00011935\U00011930 \u0061\u1715\u0334",
             "\u4e2d\u56fd\u4e2d \u3042\ud55c \u0434\u043e\u043c\u0438",
             "\u2581a\u2581 b <0x41> <unk>"]
    data = [text.encode() for text in texts]
    data += [b"\xff\xfe a\xc3 \xe2\x82 \xf0\x9f\x92\xf0\x9f\x92\xa9 \xed\xa0\x80\xc0\x80",
             b"\xf4\x90\x80\x80", b"\xe4\xb8", b"x" * 400,
             ("\u4e2d" * 60 + "ka" * 60).encode()]
    for _ in range(8):
        data.append("".join(chr(draw.choice([draw.randrange(0x250), draw.randrange(0x3000),
                                             draw.randrange(0xe000, 0x110000)]))
                            for _ in range(40)).encode())
    return data


def main():
    os.makedirs(PLACE, exist_ok=True)
    for family, make in FAMILIES.items():
        tokenizer = make()
        with open(os.path.join(PLACE, family + ".json"), "w", encoding="utf-8") as out:
            out.write(tokenizer.to_str(pretty=False) + "\n")
        with open(os.path.join(PLACE, family + ".golden"), "w", encoding="ascii") as out:
            for data in cases():
                for special, as_text in ((False, False), (True, True)):
                    if special and b"<" not in data and b"a" != data:
                        continue
                    ids, spans, back = judge(tokenizer, data, special, as_text)
                    out.write(json.dumps([data.hex(), special, as_text, ids,
                                          [place for span in spans for place in span],
                                          back.encode().hex()], separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
