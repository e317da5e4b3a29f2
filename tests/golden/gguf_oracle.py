# SPDX-License-Identifier: MIT
"""Compares what `weir export --format gguf` writes with the Python package gguf (0.17 or newer).

usage: python tests/golden/gguf_oracle.py WEIR [SEED [COUNT]]   (gguf, numpy, safetensors)

Random small configs of all families, each with a tokenizer of tests/golden/tokenizers, in every
type: the package must read the file, and find in it the sizes, the tokens and each tensor's
numbers: of f32, f16 and bf16 the same, of q8_0 the blocks that its own quantize makes, bit for bit.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

TOKENIZERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
PRE = {"qwen": "qwen2", "smollm": "smollm", "llama3": "llama-bpe", "gpt2": "gpt-2"}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


def name_of(name):
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if name in whole:
        return whole[name]
    _, _, block, rest = name.split(".", 3)
    part, end = rest.rsplit(".", 1)
    return f"blk.{block}.{NAMES[part]}.{end}"


def permuted(tensor, heads):
    """As llama.cpp's converter has it (LlamaModel.permute)."""
    shape = tensor.shape
    return (tensor.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2)
            .reshape(shape))


def config_of(draw):
    family = draw.choice(["llama", "mistral", "qwen2", "qwen3"])
    kv = draw.choice([1, 2])
    config = dict(model_type=family, num_hidden_layers=draw.randint(1, 3), hidden_size=32 * draw.randint(1, 3),
                  intermediate_size=draw.choice([48, 64, 96]), num_attention_heads=kv * draw.choice([1, 2]),
                  num_key_value_heads=kv, head_dim=draw.choice([4, 8, 16]), vocab_size=draw.randint(640, 700),
                  max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
                  tie_word_embeddings=draw.random() < 0.5, eos_token_id=3)
    if family == "mistral":
        config["sliding_window"] = draw.choice([64, None])
    if family == "llama" and draw.random() < 0.5:
        config["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    return config


def check_tensors(reader, weights, config, type_name):
    wanted = {"f32": Type.F32, "f16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0}[type_name]
    tensors = {t.name: t for t in reader.tensors}
    assert len(tensors) == len(weights)
    turns = config["model_type"] in ("llama", "mistral")
    for name, numbers in weights.items():
        if turns and "q_proj" in name:
            numbers = permuted(numbers, config["num_attention_heads"])
        if turns and "k_proj" in name:
            numbers = permuted(numbers, config["num_key_value_heads"])
        tensor, kind = tensors[name_of(name)], wanted if numbers.ndim > 1 else Type.F32
        if kind == Type.Q8_0 and numbers.shape[-1] % 32 != 0:
            kind = Type.F16
        assert tensor.tensor_type == kind, (name, tensor.tensor_type, kind)
        own = gguf.quants.quantize(numbers, kind)
        assert np.array_equal(own.view(np.uint8).reshape(-1), tensor.data.view(np.uint8).reshape(-1)), name


def check_text(reader, family, tokenizer, config):
    field = reader.fields
    assert field["tokenizer.ggml.pre"].contents() == PRE[tokenizer]
    tokens = field["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == config["vocab_size"]
    with open(f"{TOKENIZERS}/{tokenizer}.json", encoding="utf-8") as file:
        root = json.load(file)
    for text, number in root["model"]["vocab"].items():
        assert tokens[number] == text
    for token in root["added_tokens"]:
        assert tokens[token["id"]] == token["content"]
    merges = field["tokenizer.ggml.merges"].contents()
    assert merges == [m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]]
    arch = {"mistral": "llama"}.get(family, family)
    for key, wanted in (("block_count", config["num_hidden_layers"]), ("embedding_length", config["hidden_size"]),
                        ("attention.head_count", config["num_attention_heads"]),
                        ("attention.head_count_kv", config["num_key_value_heads"]),
                        ("attention.key_length", config["head_dim"]), ("rope.freq_base", 10000.0),
                        ("context_length", config.get("sliding_window") or 256)):
        assert field[f"{arch}.{key}"].contents() == wanted, key


def main():
    weir, seed, count = sys.argv[1], int((sys.argv + [0])[2]), int((sys.argv + [0, 0])[3] or 8)
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        config, tokenizer = config_of(draw), draw.choice(list(PRE))
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/model"
            os.mkdir(model)
            with open(f"{model}/config.json", "w", encoding="utf-8") as file:
                json.dump(config, file)
            subprocess.check_call(["cp", f"{TOKENIZERS}/{tokenizer}.json", f"{model}/tokenizer.json"])
            subprocess.check_call([weir, "init", "--model", model, "--out", f"{model}/model.safetensors",
                                   "--seed", str(number)])
            weights = load_file(f"{model}/model.safetensors")
            for kind in ("f32", "f16", "bf16", "q8_0"):
                subprocess.check_call([weir, "export", "--model", model, "--format", "gguf", "--type", kind,
                                       "--out", f"{folder}/m.gguf"], stderr=subprocess.DEVNULL)
                reader = gguf.GGUFReader(f"{folder}/m.gguf")
                check_tensors(reader, weights, config, kind)
                check_text(reader, config["model_type"], tokenizer, config)
        print(number, config["model_type"], tokenizer, "right", flush=True)


main()
