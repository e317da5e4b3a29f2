# SPDX-License-Identifier: MIT
"""Writes tests/golden/rows.golden: rows of text and conversations as a collator in Python makes them.

usage: python tests/golden/make_rows.py [SEED [OUT]]   (transformers 5.23, tokenizers 0.23, jinja2)

Which tokens are replies' is said by transformers: return_assistant_tokens_mask, for templates that
mark replies with {% generation %} and write what the published ones write where a conversation has
a system turn of its own. Each line of the file is a case: the family of the tokenizer
(tests/golden/tokenizers), the form, the context, and either the lines of a .jsonl or texts of
files; then all rows, inputs and targets, -100 for what is not learnt.
"""
import json
import os
import random
import sys

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
TURNS = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
         "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
         "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}")
FORMS = {"qwen2.5": "qwen", "smollm2": "smollm"}
SEPARATORS = {"qwen": "<|endoftext|>", "smollm": "<|endoftext|>"}
PARTS = ["kalo ", "mi", " then", "\n", "été", "中国", "x = 1;", "2024", " \U0001f600",
         "\t", "a longer piece of words", "é", "\u00a0"]
IGNORED = -100


def text(draw, least=1):
    return "".join(draw.choices(PARTS, k=draw.randint(least, 9)))


def conversation(draw):
    said = [{"role": "system", "content": text(draw)}]
    for _ in range(draw.randint(1, 3)):
        said.append({"role": "user", "content": text(draw, 0)})
        said.append({"role": "assistant", "content": text(draw, 0)})
    if draw.random() < 0.3:
        said.append({"role": "user", "content": text(draw)})
    return said


def shifted(ids, learnt, context):
    targets = [t if m else IGNORED for t, m in zip(ids[1:], learnt[1:])]
    rest = context - len(targets)
    assert rest >= 0
    return [ids[:-1] + [0] * rest, targets + [IGNORED] * rest]


def of_chats(tokenizer, draw, count):
    lines, rows = [], []
    for i in range(count):
        said = conversation(draw)
        line = {"messages": said, "source": i}
        got = tokenizer.apply_chat_template(said, chat_template=TURNS, tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=True)
        rows.append((got["input_ids"], got["assistant_masks"]))
        lines.append(json.dumps(line, ensure_ascii=draw.random() < 0.5))
    context = max(len(ids) for ids, _ in rows) - 1
    return lines, context, [shifted(ids, learnt, context) for ids, learnt in rows]


def of_texts(tokenizer, draw, count, separator):
    texts = ["".join(text(draw) for _ in range(draw.randint(0, 8))) for _ in range(count)]
    ids = []
    for one in texts:
        ids += tokenizer.encode(one) + [tokenizer.convert_tokens_to_ids(separator)]
    context = 16
    windows = [ids[at:at + context + 1] for at in range(0, len(ids) - 1, context)]
    return texts, context, [shifted(w, [1] * len(w), context) for w in windows]


def main():
    seed = int((sys.argv + [0])[1])
    out = sys.argv[2] if len(sys.argv) > 2 else f"{HERE}/rows.golden"
    with open(out, "w", encoding="utf-8") as file:
        for form, family in FORMS.items():
            draw = random.Random(f"{seed} {form}")
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{HERE}/tokenizers/{family}.json")
            lines, context, rows = of_chats(tokenizer, draw, 12)
            case = {"family": family, "form": form, "context": context, "lines": lines, "rows": rows}
            file.write(json.dumps(case, separators=(",", ":")) + "\n")
            texts, context, rows = of_texts(tokenizer, draw, 6, SEPARATORS[family])
            case = {"family": family, "context": context, "texts": texts, "rows": rows}
            file.write(json.dumps(case, separators=(",", ":")) + "\n")


main()
