# SPDX-License-Identifier: MIT
"""Compares loss, output and gradients of random models and pipelines, by 'weir grad' in f32, with
PyTorch's in f64 on the CPU. A tensor is right where its distance from PyTorch's is at most 2 ulps
of f32 times the root of the longest sum, relative to its length. Exit 1 where one is not.

    python grad.py --weir bin/weir --device cuda
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import gpt2_gpu
import peer
import unet_eager

SCHEDULES = ["gpipe", "1f1b", "zb-h1", "zb-v", "interleaved"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--weir", default="zig-out/bin/weir")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def open_torch():
    try:
        import torch
    except ImportError as error:
        print(f"{sys.executable} has no PyTorch: {error}")
        sys.exit(peer.MISSING)
    torch.set_default_dtype(torch.float64)
    return torch


def save(torch, path, tensors):
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        kind = "I64" if tensor.dtype == torch.int64 else "F32"
        part = bytes(tensor.contiguous().untyped_storage())
        header[name] = {"dtype": kind, "shape": list(tensor.shape),
                        "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


# ---- models --------------------------------------------------------------------------------------


def draw_gpt(torch, draw):
    heads, rows = draw.choice([1, 2, 3]), draw.randint(1, 6)
    a = argparse.Namespace(layers=draw.randint(1, 3), heads=heads,
                           width=heads * draw.choice([8, 20]), context=draw.randint(2, 40),
                           vocab=draw.choice([17, 64]), untied=draw.random() < 0.5)
    options = ["--model", "gpt", "--untied" if a.untied else "--tied"]
    for key in ("layers", "heads", "width", "context", "vocab"):
        options += [f"--{key}", str(getattr(a, key))]
    tokens = torch.randint(a.vocab, (rows, a.context + 1))
    model = gpt2_gpu.make_gpt(torch, a)

    def turn(name, tensor):
        return tensor.T if name.endswith(gpt2_gpu.TRANSPOSED) else tensor

    def loss(output, target):
        return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    return options, model, turn, loss, tokens[:, :-1].clone(), tokens[:, 1:].clone()


def draw_unet(torch, draw):
    depth, convs, channels = draw.randint(1, 2), draw.randint(1, 2), draw.choice([4, 8])
    side, rows = draw.randint(8, 24), draw.randint(1, 4)
    options = ["--model", "unet", "--depth", str(depth), "--num-convs", str(convs),
               "--base-channels", str(channels), "--dropout", "0", "--image-size", str(side)]
    model = unet_eager.make_unet(torch, depth, convs, channels, 0.0)
    images = torch.rand(rows, 3, side, side, dtype=torch.float32)
    masks = (torch.rand(rows, 1, side, side) < 0.5).float()
    return (options, model, lambda name, tensor: tensor, torch.nn.BCEWithLogitsLoss(), images,
            masks)


def own_names(model, file):
    """Weir's name of each of the model's parameters: the same, or numbered in the same order."""
    own = dict(model.named_parameters())
    if own.keys() == file.keys():
        return {name: name for name in own}
    numbered = sorted(file, key=lambda name: int(name.split(".")[0]))
    assert len(numbered) == len(own), (numbered, list(own))
    return dict(zip(numbered, own))


# ---- a case --------------------------------------------------------------------------------------


def run_weir(command):
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError((run.stderr.strip() or f"exit {run.returncode}").splitlines()[0])


def distance(torch, got, wanted):
    wanted = wanted.double()
    length = wanted.norm().item()
    far = (got.double().reshape(wanted.shape) - wanted).norm().item() / (length or 1.0)
    return far if math.isfinite(far) else math.inf  # max() would pass over a NaN


def compare(torch, arguments, draw, folder):
    """The worst tensor's distance by what is allowed, its name, and the case in words."""
    kind = draw_gpt if draw.random() < 0.6 else draw_unet
    options, model, turn, criterion, inputs, target = kind(torch, draw)
    pipeline = ["--workers", str(draw.randint(1, 2)), "--chunks", str(draw.randint(1, 4)),
                "--schedule", draw.choice(SCHEDULES),
                "--checkpoint", draw.choice(["always", "except_last", "never"])]
    words = " ".join([*options, *pipeline])
    weights, data, out = (os.path.join(folder, name) for name in ("weights", "data", "out"))
    run_weir([arguments.weir, "init", *options, "--seed", str(draw.randint(1, 999)), "--out",
              weights])
    save(torch, data, {"input": inputs, "target": target if inputs.dtype == torch.int64 else
                       target.to(torch.float32)})
    run_weir([arguments.weir, "grad", *options, *pipeline, "--device", arguments.device, "--dtype",
              "f32", "--bind", "none", "--weights", weights, "--data", data, "--out", out])
    file = peer.read_safetensors(torch, weights)
    names, own = own_names(model, file), dict(model.named_parameters())
    with torch.no_grad():
        for name, of in names.items():
            own[of].copy_(turn(name, file[name]))
    output = model(inputs if inputs.dtype == torch.int64 else inputs.double())
    loss = criterion(output, target)
    loss.backward()
    wanted = {"loss": loss.detach(), "output": output.detach()}
    wanted |= {f"grad.{name}": turn(name, own[of].grad) for name, of in names.items()}
    got = peer.read_safetensors(torch, out)
    longest = max(inputs.numel(), *(parameter[0].numel() for parameter in own.values()))
    allowed = 2 * 2.0**-23 * longest**0.5
    worst = max((distance(torch, got[name], wanted[name]) / allowed, name) for name in wanted)
    return *worst, words


def main():
    arguments = parse_arguments()
    torch = open_torch()
    torch.manual_seed(arguments.seed)
    draw, wrong = random.Random(arguments.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.cases):
            try:
                worst, name, words = compare(torch, arguments, draw, folder)
            except RuntimeError as error:
                print(f"grad: FAIL: {error}", flush=True)
                wrong += 1
                continue
            right = worst <= 1.0
            wrong += not right
            print(f"{'ok' if right else 'grad: FAIL:'} {worst:.3f} of what is allowed, at {name}: "
                  f"{words}", flush=True)
    print(f"{arguments.cases - wrong} of {arguments.cases} models and pipelines are right, against "
          f"PyTorch {torch.__version__} in f64")
    sys.exit(1 if wrong else 0)


main()
