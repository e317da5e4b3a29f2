# SPDX-License-Identifier: MIT
"""Compares the built-in models with PyTorch: random sizes of each, by `weir grad` over random
pipelines.

usage: python tests/golden/models_oracle.py [--weir PATH] [--seed S] [--count N] [--dtypes f64,f32]
           [MODEL...]       of resnet101 amoebanetd unet gpt residual gpt2; all, in turn

Of each case the output, the loss, all gradients and batch norm's running numbers. The definitions
below are written after the papers and the models' descriptions alone, in float64; PyTorch runs on
the micro-batches that `weir grad` makes. Errors are relative, by the norms of tensors; of small
gradients to a ten-thousandth of the largest. They may be FACTOR times the largest error of the
same definitions in float32: in F64 times 2^-29 more, what a number is rounded less there. With it
a hundred layers' own chaos is allowed for. (PyTorch 2.15, safetensors.)
"""
import argparse
import math
import random
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

FACTOR, LEAST = 8, {"f64": 1e-11, "f32": 2e-5}
BITS_MORE = 29  # of a double's rounding beside a float's
MOMENTUM = 0.1


class Net:
    """Makes parameters when `forward` first asks for them. `forward(net, x)`."""

    def __init__(self, forward):
        self.forward, self.parameters, self.running, self.seen = forward, {}, {}, {}

    def weight(self, name, *shape, middle=0.0, spread=None):
        if name not in self.parameters:
            if spread is None:
                spread = (2.0 / torch.Size(shape[1:]).numel()) ** 0.5
            self.parameters[name] = middle + spread * torch.randn(*shape, dtype=torch.float64)
        return self.parameters[name]

    def conv(self, x, name, out, kernel, stride=1, padding=0):
        kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        weight = self.weight(name + ".weight", out, x.shape[1], *kernel)
        return F.conv2d(x, weight, None, stride, padding)

    def norm(self, x, name, scale=1.0):
        c = x.shape[1]
        weight = self.weight(name + ".weight", c, middle=scale, spread=0.1 * scale)
        bias = self.weight(name + ".bias", c, spread=0.1)
        if name not in self.running:
            self.running[name] = (torch.randn(c).double() / 4, torch.rand(c).double() + 0.5)
        self.seen.setdefault(name, []).append(x.detach())
        return F.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5)

    def linear(self, x, name, out):
        weight = self.weight(name + ".weight", out, x.shape[-1])
        return F.linear(x, weight, self.weight(name + ".bias", out, spread=0.1))

    def at(self, dtype):
        """The same numbers, as leaves."""
        net = Net(self.forward)
        net.parameters = {k: p.detach().to(dtype).requires_grad_()
                          for k, p in self.parameters.items()}
        net.running = {k: tuple(t.to(dtype) for t in pair) for k, pair in self.running.items()}
        return net

    def settled(self):
        """The running numbers after the mini-batch."""
        found = {}
        for name, (mean, variance) in self.running.items():
            x = torch.cat(self.seen[name])
            for part, old, new in (("mean", mean, x.mean((0, 2, 3))),
                                   ("var", variance, x.var((0, 2, 3), unbiased=True))):
                found[f"{name}.running_{part}"] = (1 - MOMENTUM) * old + MOMENTUM * new
        return found


# ---- ResNet-101 ---------------------------------------------------------------------------------


def resnet(classes):
    def bottleneck(net, x, name, planes, stride):
        y = F.relu(net.norm(net.conv(x, name + ".conv1", planes, 1), name + ".bn1"))
        y = F.relu(net.norm(net.conv(y, name + ".conv2", planes, 3, stride, 1), name + ".bn2"))
        # Branches are small, or float32 says nothing of a hundred layers' gradients.
        y = net.norm(net.conv(y, name + ".conv3", 4 * planes, 1), name + ".bn3", 1 / 8)
        if stride > 1 or x.shape[1] != 4 * planes:
            x = net.norm(net.conv(x, name + ".downsample.0", 4 * planes, 1, stride),
                         name + ".downsample.1")
        return F.relu(y + x)

    def forward(net, x):
        x = F.max_pool2d(F.relu(net.norm(net.conv(x, "conv1", 64, 7, 2, 3), "bn1")), 3, 2, 1)
        for stage, blocks in enumerate((3, 4, 23, 3)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                x = bottleneck(net, x, f"layer{stage + 1}.{block}", 64 * 2**stage, stride)
        return net.linear(x.mean((2, 3)), "fc", classes)

    return forward


# ---- AmoebaNet-D --------------------------------------------------------------------------------


def amoebanet(layers, filters, classes):
    def unit(net, x, name, first, out, kernel=1, stride=1, padding=0):
        x = net.conv(F.relu(x), f"{name}.{first + 1}", out, kernel, stride, padding)
        return net.norm(x, f"{name}.{first + 2}")

    def factorized(net, x, name, out):
        x = F.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        halves = [net.conv(x, name + ".conv1", out // 2, 1, 2),
                  net.conv(shifted, name + ".conv2", out // 2, 1, 2)]
        return net.norm(torch.cat(halves, 1), name + ".bn")

    def chain(net, x, name, c, inner):
        x = unit(net, x, name, 0, c // 4)
        for i, (kernel, stride, padding) in enumerate(inner):
            x = unit(net, x, name, 3 * (i + 1), c // 4, kernel, stride, padding)
        return unit(net, x, name, 3 * (len(inner) + 1), c)

    def operate(net, x, name, kind, s):
        c = x.shape[1]
        if kind == "none":
            return x if s == 1 else factorized(net, x, name, c)
        if kind == "pool3":  # both of upstream's, the one called max_pool_3x3 too
            return F.avg_pool2d(x, 3, s, 1, count_include_pad=False)
        if kind == "pool2":
            return F.max_pool2d(x, 2, s, 0)
        if kind == "conv1":
            return unit(net, x, name, 0, c, 1, s)
        inner = {"conv3": [(3, s, 1)],
                 "conv7": [((1, 7), (1, s), (0, 3)), ((7, 1), (s, 1), (3, 0))]}
        return chain(net, x, name, c, inner[kind])

    normal = ("1 conv1 1 pool3 1 none 0 conv7 0 conv1 0 conv7 2 pool3 2 none 1 pool3 5 conv1",
              (0, 3, 4, 6))
    reducing = ("0 pool2 0 pool3 2 none 1 conv3 2 conv7 2 pool3 3 none 1 pool2 2 pool3 3 conv1",
                (4, 5, 6))

    def cell(net, state, name, c, reduces, reduced_before):
        near, far = state
        text, kept = reducing if reduces else normal
        words = text.split()
        states = [unit(net, near, name + ".reduce1", 0, c)]
        if reduced_before:
            states.append(factorized(net, far, name + ".reduce2", c))
        else:
            states.append(far if far.shape[1] == c else unit(net, far, name + ".reduce2", 0, c))
        made = []
        for i in range(10):
            source, kind = int(words[2 * i]), words[2 * i + 1]
            stride = 2 if reduces and source < 2 else 1
            made.append(operate(net, states[source], f"{name}.operations.{i}", kind, stride))
            if i % 2 == 1:
                states.append(made[-2] + made[-1])
        return torch.cat([states[i] for i in kept], 1), near

    def forward(net, x):
        c = filters // 4
        x = net.norm(net.conv(F.relu(x), "stem1.conv", c, 3, 2, 1), "stem1.bn")
        names = ["stem2", "stem3"]
        for group in (1, 3, 5):
            names += [f"cell{group}_normal{i + 1}" for i in range(layers // 3)]
            names += [f"cell{group + 1}_reduction"] if group < 5 else []
        state, before = (x, x), False
        for name in names:
            reduces = "normal" not in name
            c *= 2 if reduces else 1
            state, before = cell(net, state, name, c, reduces, before), reduces
        return net.linear(F.avg_pool2d(state[0], 7).flatten(1), "classify.fc", classes)

    return forward


# ---- U-Net --------------------------------------------------------------------------------------


def unet(depth, convs, base, out_channels):
    def forward(net, x):
        place = 0

        def stack(x, middle, out):
            nonlocal place
            for i in range(convs):
                x = net.conv(x, str(place), out if i == convs - 1 else middle, 3, 1, 1)
                x = F.leaky_relu(F.instance_norm(x, eps=1e-5), 0.01)
                place += 4  # and a dropout
            return x

        bridges = []
        for i in range(depth):
            x = stack(x, base * 2**i, base * 2**i)
            bridges.append(x)
            x = F.max_pool2d(x, 2)
            place += 2
        x = stack(x, base * 2**depth, base * 2 ** (depth - 1))
        for i in reversed(range(depth)):
            x, bridge = F.interpolate(x, scale_factor=2, mode="nearest"), bridges[i]
            x = F.pad(x, (0, bridge.shape[3] - x.shape[3], 0, bridge.shape[2] - x.shape[2]))
            x = torch.cat([x, bridge], 1)
            place += 2
            out = base * 2**i // 2
            x = stack(x, out, out)
        return net.conv(x, str(place), out_channels, 1)

    return forward


# ---- GPTs ---------------------------------------------------------------------------------------


def gpt(layers, width, heads, context, vocab, tied, block=0):
    def layer_norm(net, x, name):
        weight = net.weight(name + ".weight", width, middle=1.0, spread=0.2)
        bias = net.weight(name + ".bias", width, spread=0.1)
        return F.layer_norm(x, (width,), weight, bias, 1e-5)

    def product(net, x, name, out):
        weight = net.weight(name + ".weight", x.shape[-1], out, spread=x.shape[-1] ** -0.5)
        return x @ weight + net.weight(name + ".bias", out, spread=0.1)

    def attention(net, x, name):
        rows, tokens, _ = x.shape
        qkv = product(net, layer_norm(net, x, name + ".ln_1"), name + ".attn.c_attn", 3 * width)
        q, k, v = qkv.view(rows, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / (width // heads) ** 0.5
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return product(net, mixed.transpose(1, 2).flatten(2), name + ".attn.c_proj", width)

    def mlp(net, x, name):
        y = product(net, layer_norm(net, x, name + ".ln_2"), name + ".mlp.c_fc", 4 * width)
        return product(net, F.gelu(y, approximate="tanh"), name + ".mlp.c_proj", width)

    def mix(net, sources, name):
        """Each token's average of the sources by a softmax of w . RMSNorm(source)."""
        norm = net.weight(name + "_res_norm.weight", width, middle=1.0, spread=0.2)
        query = net.weight(name + "_res_proj.weight", width, spread=0.5)
        values = torch.stack(sources)
        keys = values * (values.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm
        shares = (keys @ query).softmax(0)
        return (shares[..., None] * values).sum(0)

    def blocks(net, x):
        finished, present = [], x
        for i in range(layers):
            h = mix(net, finished + [present], f"h.{i}.attn")
            if i % block == 0:
                finished, present = finished + [present], 0
            present = present + attention(net, h, f"h.{i}")
            h = mix(net, finished + [present], f"h.{i}.mlp")
            present = present + mlp(net, h, f"h.{i}")
        return mix(net, finished + [present], "final")

    def forward(net, tokens):
        table = net.weight("wte.weight", vocab, width, spread=0.5)
        x = table[tokens] + net.weight("wpe.weight", context, width, spread=0.5)[:tokens.shape[1]]
        if block > 0:
            x = blocks(net, x)
        else:
            for i in range(layers):
                x = x + attention(net, x, f"h.{i}")
                x = x + mlp(net, x, f"h.{i}")
        head = table if tied else net.weight("lm_head.weight", vocab, width)
        return layer_norm(net, x, "ln_f") @ head.T

    return forward


# ---- cases --------------------------------------------------------------------------------------


def random_case(kind, rng):
    """Arguments of Weir, a net, data, and how many layers there are."""
    rows, image = rng.randint(4, 7), lambda h, w: torch.randn(rows, 3, h, w)
    if kind == "resnet101":
        classes, h, w = rng.randint(2, 20), rng.randint(33, 64), rng.randint(33, 64)
        data = {"input": image(h, w), "target": torch.randint(classes, (rows,))}
        return f"--classes {classes} --image-size {h}x{w}", resnet(classes), data, 370
    if kind == "amoebanetd":
        layers, filters, classes = rng.choice([3, 6]), 8 * rng.randint(1, 3), rng.randint(2, 20)
        h, w = rng.choice([224, 256]), rng.choice([224, 256])  # halves of odd sides differ
        data = {"input": image(h, w), "target": torch.randint(classes, (rows,))}
        return (f"--layers {layers} --filters {filters} --classes {classes} --image-size {h}x{w}",
                amoebanet(layers, filters, classes), data, layers + 6)
    if kind == "unet":
        depth, convs = rng.randint(1, 4), rng.randint(1, 3)
        base, out = 2 * rng.randint(1, 5), rng.randint(1, 2)
        h, w = (rng.randint(2 * 2**depth, 6 * 2**depth) for _ in range(2))
        data = {"input": image(h, w), "target": torch.rand(rows, out, h, w)}
        return (f"--depth {depth} --num-convs {convs} --base-channels {base} --out-channels {out} "
                f"--dropout 0 --image-size {h}x{w}", unet(depth, convs, base, out), data, 10)
    heads = rng.choice([1, 2, 4])
    layers, width = rng.randint(2, 6), heads * rng.randint(2, 16)
    context, vocab = rng.randint(1, 40), rng.randint(5, 300)
    tied = kind == "gpt2" or rng.random() < 0.5
    block = rng.randint(1, layers) if kind == "residual" else 0
    text = f"--layers {layers} --width {width} --heads {heads} --context {context} --vocab {vocab}"
    text += "" if kind == "gpt2" else " --tied" if tied else " --untied"
    text += f" --residual-block {block}" if block > 0 else ""
    tokens = torch.randint(vocab, (rows, context + 1))
    data = {"input": tokens[:, :-1].contiguous(), "target": tokens[:, 1:].contiguous()}
    return text, gpt(layers, width, heads, context, vocab, tied, block), data, layers + 2


def random_pipe(rng, layers):
    """Of up to four stages; micro-batches of two rows at least, which batch norm wants."""
    schedule = rng.choice(["gpipe", "1f1b", "zb-v"])
    stages = rng.choice([2, 4]) if schedule == "zb-v" else rng.randint(1, 4)
    chunks = rng.randint(1, 2)
    text = (f"--schedule {schedule} --stages {min(stages, layers)} --chunks {chunks} "
            f"--checkpoint {rng.choice(['always', 'except_last', 'never'])} "
            f"--recompute {rng.choice(['early', 'late'])} "
            f"--threads-per-stage {rng.randint(1, 2)} --bind none")
    return text, chunks


def loss_sum(kind, output, target):
    if kind == "unet":
        target = target.to(output.dtype)
        return F.binary_cross_entropy_with_logits(output, target, reduction="sum")
    flat = output.reshape(-1, output.shape[-1])
    return F.cross_entropy(flat, target.reshape(-1), reduction="sum")


def step(kind, net, data, chunks):
    """By the names of `weir grad`'s file."""
    dtype = next(iter(net.parameters.values())).dtype
    x = data["input"]
    if x.is_floating_point():
        x = x.detach().to(dtype, copy=True).requires_grad_()
    outputs, total = [], 0.0
    for xs, target in zip(x.chunk(chunks), data["target"].chunk(chunks)):
        outputs.append(net.forward(net, xs))
        total = total + loss_sum(kind, outputs[-1], target) / data["target"].numel()
    total.backward()
    made = {"loss": total, "output": torch.cat(outputs)}
    made |= {f"grad.{k}": p.grad for k, p in net.parameters.items()}
    made |= {f"buffer.{k}": t for k, t in net.settled().items()}
    if x.is_floating_point():
        made["grad.input"] = x.grad
    return {k: t.detach().double().flatten() for k, t in made.items()}


def errors(have, want):
    least = 1e-4 * max(t.norm() for k, t in want.items() if k.startswith("grad."))
    found = {}
    for key, t in want.items():
        if key not in have or have[key].numel() != t.numel():
            raise RuntimeError(f"{key} is missing, or of another size")
        floor = least if key.startswith("grad.") else torch.tensor(1e-30).double()
        found[key] = ((have[key].double().flatten() - t).norm() / t.norm().clamp_min(floor)).item()
    return found


def weights_of(net, dtype):
    file = {k: p.detach().to(dtype).contiguous() for k, p in net.parameters.items()}
    for name, (mean, variance) in net.running.items():
        file |= {f"{name}.running_mean": mean.to(dtype), f"{name}.running_var": variance.to(dtype),
                 f"{name}.num_batches_tracked": torch.tensor(len(name))}
    return file


def check(weir, folder, kind, rng, dtypes):
    text, forward, data, layers = random_case(kind, rng)
    net = Net(forward)
    x = data["input"]
    with torch.no_grad():
        net.forward(net, x.double() if x.is_floating_point() else x)
    net = net.at(torch.float32).at(torch.float64)  # numbers that both have
    for dtype in dtypes:
        pipe, chunks = random_pipe(rng, layers)
        want = step(kind, net.at(torch.float64), data, chunks)
        own = max(errors(step(kind, net.at(torch.float32), data, chunks), want).values())
        wide = torch.float64 if dtype == "f64" else torch.float32
        save_file(weights_of(net, wide), f"{folder}/weights.safetensors")
        save_file({k: t.to(wide) if t.is_floating_point() else t for k, t in data.items()},
                  f"{folder}/data.safetensors")
        name = {"residual": "gpt", "gpt2": "gpt2-124m"}.get(kind, kind)
        command = [weir, "grad", "--model", name, *text.split(), *pipe.split(), "--dtype", dtype,
                   "--weights", f"{folder}/weights.safetensors",
                   "--data", f"{folder}/data.safetensors", "--out", f"{folder}/out.safetensors"]
        shown = f"{name} {text} {pipe} --dtype {dtype}"
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{shown}\n{done.stderr[-2000:]}")
        found = errors(load_file(f"{folder}/out.safetensors"), want)
        scale = 2.0**-BITS_MORE if dtype == "f64" else 1.0
        bound = max(FACTOR * own * scale, LEAST[dtype])
        worst = max(found, key=lambda name: (math.isnan(found[name]), found[name]))
        print(f"    {dtype} {found[worst]:.1e} of {bound:.1e} ({worst}) {pipe}", flush=True)
        if not found[worst] <= bound:
            raise RuntimeError(f"{shown}\n{worst}: {found[worst]:.3g} > {bound:.3g}")


KINDS = ("resnet101", "amoebanetd", "unet", "gpt", "residual", "gpt2")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", default="zig-out/bin/weir")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["f64", "f32"])
    parser.add_argument("models", nargs="*", default=KINDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for i in range(arguments.count):
        seed, kind = arguments.seed + i, arguments.models[i % len(arguments.models)]
        rng = random.Random(f"{kind} {seed}")
        torch.manual_seed(seed)
        print(f"{kind} seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(arguments.weir, folder, kind, rng, arguments.dtypes)
            except RuntimeError as fault:
                wrong += 1
                print(f"wrong: {fault}", flush=True)
    print(f"{arguments.count - wrong} of {arguments.count} cases right")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
