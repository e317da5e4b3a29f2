# SPDX-License-Identifier: MIT
"""Writes tests/golden/sampling.golden: what transformers' logits processors make of logits, in the
order in which `generate` calls them.

usage: python tests/golden/make_sampling.py [SEED [COUNT [OUT]]]   (transformers 5.23, torch 2.15)

Each line has logits, the text's tokens, the options and the probabilities that are left. A model of
random weights is asked for its processors, so that their order is the library's own.
"""
import json
import os
import random
import sys

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB = 24


def options_of(draw):
    return {"temperature": draw.choice([1.0, 0.3, 0.7, 1.5]),
            "top_k": draw.choice([0, 0, 1, 5, 12, VOCAB]),
            "top_p": draw.choice([1.0, 1.0, 0.95, 0.6, 0.1]),
            "min_p": draw.choice([0.0, 0.0, 0.02, 0.2, 0.9, 1.0]),
            "repetition_penalty": draw.choice([1.0, 1.2, 2.0, 0.8])}


def processed(model, options, tokens, logits):
    config = GenerationConfig(do_sample=True, pad_token_id=0, **options)
    model._prepare_special_tokens(config, device="cpu")
    processors = model._get_logits_processor(generation_config=config,
                                             input_ids_seq_length=len(tokens), device="cpu")
    scores = processors(torch.tensor([tokens]), torch.tensor([logits], dtype=torch.float64))
    return scores[0]


def main():
    seed, count = int((sys.argv + [""] * 2)[1] or 1), int((sys.argv + [""] * 3)[2] or 60)
    out = sys.argv[3] if len(sys.argv) > 3 else f"{HERE}/sampling.golden"
    draw, lines = random.Random(seed), []
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=8, intermediate_size=8,
                                         num_hidden_layers=1, num_attention_heads=1))
    while len(lines) < count:
        logits = [n / 8 for n in draw.sample(range(-40, 41), VOCAB)]
        tokens = draw.choices(range(VOCAB), k=draw.randint(1, 9))
        options = options_of(draw)
        scores = processed(model, options, tokens, logits)
        left = scores[torch.isfinite(scores)].tolist()
        if len(set(left)) < len(left):
            continue  # equals at an edge are left by other rules
        lines.append(json.dumps({"logits": logits, "tokens": tokens, **options,
                                 "left": torch.softmax(scores, -1).tolist()}))
    with open(out, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


main()
