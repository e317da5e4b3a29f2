# SPDX-License-Identifier: MIT
"""Compares decoders with Hugging Face's transformers: random configs of all families, saved by
them, read by `weir grad` and `weir generate` as they are.

usage: python tests/golden/hf_oracle.py [--weir PATH] [--seed S] [--count N]

Of each config: logits, loss and all gradients by random pipelines, in f32 within 1e-4 and in bf16
within 0.02 of float64's largest number, or four times what transformers' own are off, if that is
more; and a greedy continuation, each token the likeliest but for 1e-3 of the largest logit.
(transformers 5.23, PyTorch 2.15, safetensors.)
"""
import argparse
import copy
import os
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

LEAST_BOUND, FACTOR, NEW_TOKENS = {"f32": 1e-4, "bf16": 0.02}, 4, 24


def random_config(rng):
    kind = rng.choice(["llama", "llama3", "linear", "mistral", "qwen2", "qwen3"])
    kv_heads = rng.choice([1, 2, 3])
    heads, size = kv_heads * rng.choice([1, 2, 4]), 2 * rng.randint(2, 20)
    more = {"tie_word_embeddings": rng.random() < 0.5}
    if kind != "qwen2":
        more["head_dim"] = size
    width = heads * (size if kind == "qwen2" or rng.random() < 0.5 else rng.randint(2, 30))
    theta = rng.choice([1e3, 1e4, 5e5, 1e6])
    more["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    if kind == "llama3":
        low = rng.choice([1.0, 1.5])
        more["rope_parameters"] = {
            "rope_type": "llama3", "rope_theta": theta, "factor": rng.choice([4.0, 8.0, 32.0]),
            "low_freq_factor": low, "high_freq_factor": low + rng.choice([1.0, 3.0]),
            "original_max_position_embeddings": rng.choice([16, 64])}
    if kind == "linear":
        more["rope_parameters"] = {"rope_type": "linear", "rope_theta": theta, "factor": 2.5}
    if kind in ("llama", "llama3", "linear"):
        more |= {"attention_bias": rng.random() < 0.5, "mlp_bias": rng.random() < 0.5}
    if kind == "qwen3":
        more["attention_bias"] = rng.random() < 0.5
    if kind == "mistral":
        more["sliding_window"] = rng.choice([None, 1, 7, 33])
    make = {"mistral": transformers.MistralConfig, "qwen2": transformers.Qwen2Config,
            "qwen3": transformers.Qwen3Config}.get(kind, transformers.LlamaConfig)
    return kind, make(vocab_size=rng.randint(20, 400), hidden_size=width,
                      intermediate_size=rng.randint(5, 150), num_hidden_layers=rng.randint(1, 4),
                      num_attention_heads=heads, num_key_value_heads=kv_heads,
                      max_position_embeddings=128, initializer_range=rng.choice([0.1, 0.3]),
                      rms_norm_eps=rng.choice([1e-5, 1e-6]), **more)


def random_pipe(rng, layers):
    stages = rng.randint(1, layers)
    schedule = rng.choice(["gpipe", "1f1b", "zb-h1"])
    return (f"--stages {stages} --chunks {rng.randint(1, 4)} --schedule {schedule} "
            f"--checkpoint {rng.choice(['always', 'except_last', 'never'])} "
            f"--threads-per-stage {rng.randint(1, 2)} --bind none").split()


def errors(have, want):
    """By name, by the largest number of a tensor; of gradients that are 0 but for rounding, by a
    thousandth of the largest gradient."""
    least = 1e-3 * max(want[key].abs().max() for key in want if key.startswith("grad."))
    return {key: ((have[key].double() - want[key]).abs().max() /
                  want[key].abs().max().clamp_min(least)).item() for key in want}


def gradients(model, tokens, target, dtype):
    model = copy.deepcopy(model)
    for tensor in model.parameters():  # and no buffers: frequencies stay what they are
        tensor.data = tensor.data.to(dtype)
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).to(
        torch.float64 if dtype == torch.float64 else torch.float32), target.flatten())
    loss.backward()
    made = {f"grad.{k}": p.grad.double().clone() for k, p in model.named_parameters()}
    return made | {"output": logits.detach().double(), "loss": loss.detach().double()}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def check_step(weir, folder, model, rng):
    rows, context = rng.randint(1, 5), rng.randint(1, 70)
    vocab = model.config.vocab_size
    tokens, target = (torch.randint(vocab, (rows, context)) for _ in range(2))
    save_file({"input": tokens, "target": target}, f"{folder}/data.safetensors")
    want = gradients(model, tokens, target, torch.float64)
    own = {name: max(errors(gradients(model, tokens, target, dtype), want).values())
           for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16))}
    for dtype in ("f32", "bf16"):
        pipe = random_pipe(rng, model.config.num_hidden_layers)
        run([weir, "grad", "--model", folder, "--context", str(context), "--weights", folder,
             "--data", f"{folder}/data.safetensors", "--out", f"{folder}/out.safetensors",
             "--dtype", dtype, *pipe])
        have = load_file(f"{folder}/out.safetensors")
        bound = max(FACTOR * own[dtype], LEAST_BOUND[dtype])
        for key, error in errors(have, want).items():
            if not error <= bound:
                raise RuntimeError(f"{dtype} {' '.join(pipe)}: {key}: {error:.3g} > {bound:.3g}")


def check_greedy(weir, folder, model, rng):
    prompt = [rng.randrange(model.config.vocab_size) for _ in range(rng.randint(1, 30))]
    drawn = run([weir, "generate", "--model", folder, "--load", folder, "--context", "128",
                 "--temperature", "0", "--tokens", str(NEW_TOKENS), "--bind", "none",
                 "--prompt-ids", ",".join(map(str, prompt))])
    drawn = [int(token) for token in drawn.split()]
    assert drawn[:len(prompt)] == prompt and len(drawn) == len(prompt) + NEW_TOKENS
    with torch.no_grad():
        model = model.double()
        logits = model(torch.tensor([drawn[:-1]])).logits[0, len(prompt) - 1:]
    for place, token in enumerate(drawn[len(prompt):]):
        best = logits[place].max()
        if not best - logits[place][token] <= 1e-3 * logits[place].abs().max():
            raise RuntimeError(f"token {place} is {token} ({logits[place][token]:.6f}), not "
                               f"{logits[place].argmax().item()} ({best:.6f})")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--weir", default="zig-out/bin/weir")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=20)
    options = options.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        kind, config = random_config(rng)
        model = transformers.AutoModelForCausalLM.from_config(config).float()
        for key, tensor in model.named_parameters():
            if "norm" in key or "bias" in key:
                tensor.data.add_(0.2 * torch.randn_like(tensor))
        with tempfile.TemporaryDirectory() as folder:
            shard = rng.choice(["20KB", "5GB"])
            model.save_pretrained(folder, max_shard_size=shard)
            try:
                check_step(options.weir, folder, model, rng)
                check_greedy(options.weir, folder, model, rng)
                print(f"seed {seed}: {kind}: right", flush=True)
            except RuntimeError as error:
                wrong += 1
                print(f"seed {seed}: {kind}: WRONG: {error}", flush=True)
    print(f"{options.count - wrong} right, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    os.environ.setdefault("TQDM_DISABLE", "1")
    main()
