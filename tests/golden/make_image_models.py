# SPDX-License-Identifier: MIT
"""Writes image_models.safetensors: ten updates of whole ResNet-101, AmoebaNet-D and U-Net, for
tests/net/test_golden_models.c.

usage: python tests/golden/make_image_models.py     (PyTorch, safetensors; the file is committed)

Definitions after torchvision and torchgpipe's benchmarks, in float64, under Weir's names; momentum
SGD on ROWS images in CHUNKS micro-batches, by whose own numbers batch norm normalises, while its
running ones become nn.BatchNorm2d's on the mini-batch of what reached the layer. The millions of
parameters are not in the file: all numbers follow from their names (`numbers`, and the test's).

At PyTorch's own initial values such networks are chaotic in float32: rounding doubles many times in
ten updates. So residual branches begin at a sixteenth of their size, and learning rates are small.

Tensors of a model are F64 and begin with its name and a slash:

    losses                  of the ten mini-batches
    output                  of the first
    infer                   of the first after the last update, in inference
    grads afters            two numbers of each tensor t, these in the order of names: its norm, and
                            the sum of t * numbers("check." + name). Of the first mini-batch's
                            gradients; of parameters and running numbers after all updates
    spread                  how far PyTorch in float32 is from these: the largest distance of an
                            after, a grad, infer, losses, output, relative to the norm
"""
import os

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from make_batch_norm import BatchNorm
from image_models import AmoebaNetD, ResNet101
from make_unets import Unet

FOLDER = os.path.dirname(os.path.abspath(__file__))
UPDATES, ROWS, CHUNKS, CLASSES = 10, 4, 2, 10


def numbers(name, count):
    """Uniform in -1 to 1: multiples of 2^-23."""
    seed = np.uint64(14695981039346656037)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            seed = (seed ^ np.uint64(byte)) * np.uint64(1099511628211)
        x = seed + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return torch.from_numpy((x >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1)


# ---- the models -----------------------------------------------------------------------------------


class WholeResNet(ResNet101):
    name, side, rate = "resnet101", 40, 0.0005

    def __init__(self):
        super().__init__(CLASSES, BatchNorm)


class WholeAmoebaNet(AmoebaNetD):
    name, side, rate = "amoebanetd", 224, 0.0002

    def __init__(self):
        super().__init__(3, 16, CLASSES, BatchNorm)


class WholeUnet(Unet):
    name, side, rate = "unet", 64, 0.01

    def __init__(self):
        super().__init__(5, 2, 4)

    def named_parameters(self, *arguments, **options):
        return zip(self.names, (conv.weight for conv in self.convs))

    def state_dict(self, *arguments, **options):
        return dict(self.named_parameters())


# ---- running --------------------------------------------------------------------------------------


def begin(net):
    with torch.no_grad():
        for name, p in net.named_parameters():
            own = numbers(name, p.numel()).reshape(p.shape)
            if p.dim() > 1:  # a deviation of 1 / sqrt(fan in)
                own = own * float(np.float32((3 / p[0].numel()) ** 0.5))
            else:
                own = own / 4 + name.endswith("weight")
                if "bn3" in name or "downsample.1" in name:
                    own = own / 16
            p.copy_(own.float())


def batch_of(net, k, dtype):
    shape = (ROWS, 3, net.side, net.side)
    x = numbers(f"input.{k}", ROWS * 3 * net.side**2).reshape(shape)
    target = torch.arange(ROWS) * 3 % CLASSES
    if net.name == "unet":
        target = (x[:, :1] + x[:, 1:2] > 0).to(dtype)
    return x.to(dtype), target


def loss_of(net, output, target):
    """The part of these rows in the mini-batch's mean."""
    if net.name == "unet":
        pixels = ROWS * net.side**2
        return F.binary_cross_entropy_with_logits(output, target, reduction="sum") / pixels
    return F.cross_entropy(output, target, reduction="sum") / ROWS


def step(net, x, target):
    outputs, total = [], 0.0
    for xs, ts in zip(x.chunk(CHUNKS), target.chunk(CHUNKS)):
        output = net(xs)
        loss = loss_of(net, output, ts)
        loss.backward()
        outputs.append(output.detach())
        total += loss.item()
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.settle()
    return total, torch.cat(outputs)


def checks(named):
    found = []
    for name, t in sorted(named):
        t = t.detach().double().flatten()
        found.append(torch.stack([t.norm(), torch.dot(t, numbers("check." + name, t.numel()))]))
    return torch.stack(found)


def train(make, dtype):
    net = make()
    begin(net)
    net.to(dtype).train()
    optimizer = torch.optim.SGD([p for _, p in net.named_parameters()], lr=net.rate, momentum=0.9)
    found, losses = {}, []
    for k in range(UPDATES):
        optimizer.zero_grad()
        loss, output = step(net, *batch_of(net, k, dtype))
        losses.append(loss)
        if k == 0:
            found["output"] = output.double()
            found["grads"] = checks((n, p.grad) for n, p in net.named_parameters())
        optimizer.step()
    found["afters"] = checks((n, t) for n, t in net.state_dict().items() if t.is_floating_point())
    found["losses"] = torch.tensor(losses, dtype=torch.float64)
    net.eval()
    with torch.no_grad():
        found["infer"] = net(batch_of(net, 0, dtype)[0]).double()
    return found


def spread_of(exact, single):
    """In the order of names."""
    spread = []
    for name, t in sorted(exact.items()):
        size = t[:, :1] if name in ("afters", "grads") else t.norm()
        distance = (single[name] - t) / size
        spread.append(distance.norm(dim=1).max() if name in ("afters", "grads") else
                      distance.norm())
    return torch.stack(spread)


if __name__ == "__main__":
    torch.manual_seed(1)
    tensors = {}
    for made in (WholeResNet, WholeAmoebaNet, WholeUnet):
        numbers_of = train(made, torch.float64)
        numbers_of["spread"] = spread_of(numbers_of, train(made, torch.float32))
        print(made.name, numbers_of["spread"], numbers_of["losses"], numbers_of["infer"].norm())
        tensors.update({f"{made.name}/{k}": v.contiguous() for k, v in numbers_of.items()})
    path = os.path.join(FOLDER, "image_models.safetensors")
    save_file(tensors, path)
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
