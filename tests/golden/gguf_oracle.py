# SPDX-License-Identifier: MIT
"""Compares `weir export --format gguf` with llama.cpp's own converter, and with llama.cpp.

usage: python tests/golden/gguf_oracle.py WEIR LLAMA_CPP [SEED [COUNT]]

LLAMA_CPP is a folder with llama.cpp's sources (the package llama-cpp-python has them in
vendor/llama.cpp). Needs torch, transformers 5, safetensors, and gguf; with llama_cpp (that package,
built) logits, greedy texts and tokens are compared too. Each case is a random decoder whose folder
has one of the tokenizers beside this file. All tensors must be the converter's bit for bit, q8_0's
blocks among them; and each fact that both files have.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from gguf import GGUFReader

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = ["f32", "f16", "bf16", "q8_0"]
FAMILIES = {"llama": ["gpt2", "smollm", "llama3"], "mistral": ["llama3"], "qwen2": ["qwen"],
            "qwen3": ["qwen"]}
PRE = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen": "qwen2"}
# What llama.cpp's converter makes up of names and licences, and what it leaves to defaults.
OWN = ("general.name", "general.size_label", "general.basename", "general.finetune", "GGUF.",
       "general.version", "general.sampling", "general.license", "general.base", "general.tags")
CONVERT = """
import runpy, sys
sources, name = sys.argv[1:3]
sys.path[:0] = [sources, sources + "/gguf-py"]
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: name
sys.argv = ["convert"] + sys.argv[3:]
runpy.run_path(sources + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def make(folder, draw):
    """A random decoder in `folder`; gives the name of its tokenizer and the model."""
    family = draw.choice(sorted(FAMILIES))
    name = draw.choice(FAMILIES[family])
    heads, kv = draw.choice([(4, 2), (4, 4), (6, 2), (2, 1)])
    size = draw.choice([8, 16, 32])
    text = json.load(open(f"{HERE}/tokenizers/{name}.json", encoding="utf-8"))
    tokens = max(list(text["model"]["vocab"].values()) + [t["id"] for t in text["added_tokens"]])
    sizes = dict(hidden_size=heads * draw.choice([8, 16, 24]), num_hidden_layers=draw.randint(1, 3),
                 intermediate_size=draw.choice([64, 96, 100]), num_attention_heads=heads,
                 num_key_value_heads=kv, head_dim=size, vocab_size=tokens + draw.randint(1, 9),
                 max_position_embeddings=128, tie_word_embeddings=draw.random() < 0.5,
                 rms_norm_eps=1e-5)
    rope = {"rope_type": "default", "rope_theta": draw.choice([500.0, 10000.0, 500000.0])}
    if family == "llama" and draw.random() < 0.5:
        rope.update(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=64)
    elif family == "llama" and draw.random() < 0.5:
        rope.update(rope_type="linear", factor=2.0)
    if family == "qwen2":
        sizes.update(hidden_size=heads * size)
        del sizes["head_dim"]
    config = transformers.AutoConfig.for_model(family, rope_parameters=rope, **sizes)
    if family == "llama":
        config.attention_bias = draw.random() < 0.3
        config.mlp_bias = draw.random() < 0.3
    if family == "mistral":
        config.sliding_window = None
    torch.manual_seed(draw.getrandbits(32))
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.1))
            if parameter.dim() == 1:
                parameter.add_(1)
    dtype = draw.choice([torch.float32, torch.bfloat16, torch.float16])
    model.to(dtype).save_pretrained(folder)
    added = [t for t in text["added_tokens"] if t["special"]]
    ends = {"eos_token": added[-1]["content"]} if added else {}
    post = json.dumps(text.get("post_processor"))
    first = [t["content"] for t in added if f'"id": "{t["content"]}"' in post]
    if first:
        ends["bos_token"] = first[0]
    json.dump(text, open(f"{folder}/tokenizer.json", "w", encoding="utf-8"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ messages }}",
               **ends}, open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8"))
    return name, model.float()


def facts(reader):
    return {key: field.contents() for key, field in reader.fields.items()}


def differences(own, other):
    """What of two files is not equal."""
    ours, theirs = {t.name: t for t in own.tensors}, {t.name: t for t in other.tensors}
    found = [f"tensor {name} is only in one" for name in ours.keys() ^ theirs.keys()]
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        if a.tensor_type != b.tensor_type or list(a.shape) != list(b.shape):
            found.append(f"{name}: {a.tensor_type} {a.shape}, not {b.tensor_type} {b.shape}")
        elif name == "rope_freqs.weight":
            if not numpy.allclose(a.data, b.data, rtol=4e-7, atol=0):
                found.append(f"{name}: {a.data} and {b.data}")
        elif a.data.tobytes() != b.data.tobytes():
            found.append(f"{name}: other bytes")
    ours, theirs = facts(own), facts(other)
    for key in theirs:
        if not key.startswith(OWN) and key not in ours and theirs[key] is not False:
            found.append(f"no {key}, which is {theirs[key]}")
        elif not key.startswith(OWN) and ours.get(key, False) != theirs[key]:
            found.append(f"{key} is {str(ours[key])[:200]}, not {str(theirs[key])[:200]}")
    return found


def run_in_llama(path, folder, model):
    """Logits, tokens and texts of llama.cpp beside those of transformers."""
    try:
        import llama_cpp
    except ImportError:
        return None
    found = []
    own = llama_cpp.Llama(path, n_ctx=64, logits_all=True, verbose=False, n_threads=1)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
    for text in ["hello 123 world's end", "  a\n\n b\tc 3.14", "\u00e9t\u00e9 \u4e2d\u56fd"]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        got = own.tokenize(text.encode(), add_bos=False, special=False)
        if got != ids:
            found.append(f"{text!r} is {got}, not {ids}")
    ids = list(range(3, 23))
    own.eval(ids)
    got = numpy.array(own.scores[:len(ids)])
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0].numpy()
    distance = numpy.abs(got - wanted).max() / numpy.abs(wanted).max()
    if not distance <= 1e-3:
        found.append(f"logits differ by {distance}")
    return found


def case(weir, sources, seed, quiet=True):
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, outs = f"{folder}/model", [f"{folder}/own.gguf", f"{folder}/other.gguf"]
        name, model = make(source, draw)
        kind = draw.choice(TYPES)
        found = []
        for kind in [kind, "f32"]:
            subprocess.run([weir, "export", "--model", source, "--format", "gguf", "--type", kind,
                            "--out", outs[0]], check=True)
            subprocess.run([sys.executable, "-c", CONVERT, sources, PRE[name], source, "--outtype",
                            kind, "--outfile", outs[1]], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE if quiet else None)
            found += differences(GGUFReader(outs[0]), GGUFReader(outs[1]))
        loaded = run_in_llama(outs[0], source, model)
        return found + (loaded or []), loaded is not None


def main():
    weir, sources = sys.argv[1], sys.argv[2]
    seed, count = int((sys.argv[3:] + [1])[0]), int((sys.argv[4:] + [10])[0])
    right = 0
    for i in range(seed, seed + count):
        found, loaded = case(weir, sources, i)
        right += not found
        print(f"{i}: {'right' if not found else '; '.join(found)}{'' if loaded else ' (not run)'}")
    print(f"{right} of {count} right")
    sys.exit(right != count)


main()
