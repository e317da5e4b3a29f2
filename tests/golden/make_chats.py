# SPDX-License-Identifier: MIT
"""Writes tests/golden/chats.golden: conversations as transformers' apply_chat_template has them.

usage: python tests/golden/make_chats.py FOLDER [SEED [COUNT [OUT]]]   (transformers 5.23)

FOLDER holds the published templates as FORM.jinja, which are not put into the tree; the form's name
is that of the file up to a first '-'. Each line has the form, messages, the numbers, which of them
are replies' (by the text's bytes), and those of the prompt. Its tokenizers are those of
tests/golden/tokenizers; llama3's reserved tokens get the names that its templates write.
"""
import glob
import json
import os
import random
import sys

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
PARTS = ["kalo ", "mi\n", "\n", " ", "\u00e9tu", "\u4e2d\u56fd", "\t", "\u00a0", "\u3000", "x = 1;",
         "<think>", "</think>", "\n\n", "e\u0301", "\U0001f600", "<tool_response>", "user", "<|x|>",
         "</tool_response>", "2024", "\u2028", "\x1c", "\u200b"]


def load(form):
    family = {"l": "llama3", "q": "qwen", "s": "smollm"}[form[0]]
    text = open(f"{HERE}/tokenizers/{family}.json", encoding="utf-8").read()
    for i, name in enumerate(NAMES):
        text = text.replace(f"<|reserved_special_token_{i}|>", name)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(text),
                                   bos_token="<|begin_of_text|>" if family == "llama3" else None)


def message(draw, role):
    text = "".join(draw.choices(PARTS, k=draw.randint(0, 7)))
    if role == "user" and draw.random() < 0.1:
        text = f"<tool_response>{text}</tool_response>"
    return {"role": role, "content": text}


def conversation(draw):
    said = [message(draw, "system")] if draw.random() < 0.5 else []
    for _ in range(draw.randint(1, 3)):
        said += [message(draw, "user"), message(draw, "assistant")]
    if draw.random() < 0.3:
        draw.shuffle(said)
    return said


def numbers(tokenizer, template, said, prompt):
    return tokenizer.apply_chat_template(said, chat_template=template, tokenize=True,
                                         add_generation_prompt=prompt, return_dict=False,
                                         date_string="26 Jul 2024")


def main():
    folder, seed, count = sys.argv[1], int((sys.argv + [0] * 2)[2]), int((sys.argv + [0] * 3)[3] or 8)
    out = sys.argv[4] if len(sys.argv) > 4 else f"{HERE}/chats.golden"
    with open(out, "w", encoding="utf-8") as file:
        for path in sorted(glob.glob(f"{folder}/*.jinja")):
            form = os.path.basename(path)[:-6].split("-")[0]
            name = {"llama3.2": "llama3.1", "llama3.3": "llama3.1"}.get(form, form)
            template = open(path, encoding="utf-8").read()
            tokenizer, draw = load(form), random.Random(f"{seed} {form}")
            for _ in range(count):
                said = conversation(draw)
                line = {"form": name, "messages": said}
                line["ids"] = numbers(tokenizer, template, said, False)
                line["prompt"] = numbers(tokenizer, template, said, True)
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


main()
