# SPDX-License-Identifier: MIT
"""Writes the reference numbers that tests/net/test_batch_norm.c compares with.

usage: python tests/golden/make_batch_norm.py     (PyTorch 2.15, safetensors; the files are committed)

The models of batch_layers.json and amoeba_layers.json (bench/peers/image_models.py's cells) in
float64, trained with momentum SGD on mini-batches that are cut as torch.chunk does. Batch norm
normalises each micro-batch by its own numbers; its running ones are what nn.BatchNorm2d's become on
the whole mini-batch of what reached the layer.

Tensors of a file:  param.<name>           parameters and statistics at the beginning
                    input.<k> target.<k>   the mini-batch of update k
                    loss output grad.<name> of mini-batch 0, with grad.input
                    after.<name>           parameters and statistics after all updates
                    infer                  the output for mini-batch 0 after them, in inference
                    plain.<name>           statistics after all updates that nn.BatchNorm2d has of
                                           the micro-batches in turn; not those of `downsample`
                    plain.infer            as infer, with these
"""
import copy
import json
import os
import sys
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(FOLDER, "..", "..", "bench", "peers"))
from image_models import Cell

UPDATES, ROWS, CHUNKS = 3, 7, 3


class BatchNorm(nn.BatchNorm2d):
    """Deferred, by PyTorch's own plain one on the whole."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        if self.track_running_stats:
            self.seen = getattr(self, "seen", []) + [x.detach()]
            for plain in getattr(self, "plain", []):
                plain(x.detach())
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    def settle(self):
        if not self.track_running_stats:
            return
        super().forward(torch.cat(self.seen))
        self.seen = []


def copy_of(module):
    """Kept where state_dict does not look."""
    module.plain = []
    module.plain = [copy.deepcopy(module)]
    module.plain[0].__class__ = nn.BatchNorm2d


class Residual(nn.Module):
    def __init__(self, fan_in, fan_out, stride):
        super().__init__()
        self.downsample = nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False),
                                        BatchNorm(fan_out))


class Net(nn.Module):
    """The layers of a file; modules are called as Weir calls layers."""

    def __init__(self, name):
        super().__init__()
        with open(os.path.join(FOLDER, name)) as file:
            model = json.load(file)
        self.layers, self.shape = model["layers"], model["input"]["shape"]
        state, skips = torch.zeros(2, *self.shape), {}
        for i, layer in enumerate(self.layers):
            x, before = state if isinstance(state, tuple) else (state, state)
            module = self.make(layer, x.shape[1], before.shape[1], skips)
            self.add_module(layer.get("name", str(i)).replace(".", "_"), module)
            state = self.apply_layer(layer, module, state, skips)

    @staticmethod
    def make(layer, channels, before, skips):
        kind, get = layer["type"], layer.get
        if kind == "amoeba_stem":
            conv = nn.Conv2d(channels, layer["out_channels"], 3, 2, 1, bias=False)
            return nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=conv,
                                             bn=BatchNorm(layer["out_channels"])))
        if kind.startswith("amoeba"):
            return Cell(BatchNorm, before, channels, layer["channels"], get("reduction", False),
                        get("reduction_prev", False))
        if kind == "conv2d":
            return nn.Conv2d(channels, layer["out_channels"], layer["kernel_size"],
                             get("stride", 1), get("padding", 0), bias=get("bias", True))
        if kind == "batch_norm2d":
            return BatchNorm(channels, get("eps", 1e-5),
                             get("momentum", 0.1),
                             get("affine", True), get("track_running_stats", True))
        if kind == "residual":
            return Residual(skips[layer["skip"]].shape[1], channels, layer["stride"])
        if kind == "linear":
            return nn.Linear(channels, layer["out_features"])
        if kind == "adaptive_avg_pool2d":
            return nn.AdaptiveAvgPool2d(layer["output_size"])
        return {"relu": nn.ReLU, "flatten": nn.Flatten, "stash": nn.Identity}[kind]()

    @staticmethod
    def apply_layer(layer, module, state, skips):
        kind = layer["type"]
        if kind.startswith("amoeba"):
            return module(state)
        x = state[0] if isinstance(state, tuple) else state
        if kind == "stash":
            skips[layer["skip"]] = x
        elif kind == "residual":
            return x + module.downsample(skips.pop(layer["skip"]))
        return module(x)

    def forward(self, x):
        skips = {}
        for layer, module in zip(self.layers, self.children()):
            x = self.apply_layer(layer, module, x, skips)
        return x


def single(tensor):
    return tensor.float().double()


def begin(net):
    """Numbers that f32 holds; small enough that ten layers do not blow up."""
    net.double()
    with torch.no_grad():
        for name, p in net.named_parameters():
            mean = 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0
            scale = 0.2 if p.dim() == 1 else 1 / p[0].numel() ** 0.5
            p.copy_(single(mean + scale * torch.randn_like(p)))
        for name, b in net.named_buffers():
            if b.is_floating_point():
                b.copy_(single(b + 0.3 * torch.rand_like(b)))


def step(net, x, target):
    net.zero_grad()
    outputs, total = [], 0.0
    for xs, ts in zip(x.chunk(CHUNKS), target.chunk(CHUNKS)):
        output = net(xs)
        loss = F.cross_entropy(output, ts, reduction="sum") / len(x)
        loss.backward()
        outputs.append(output.detach())
        total += loss.item()
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.settle()
    return torch.tensor(total, dtype=torch.float64), torch.cat(outputs)


def keep(tensors, prefix, named):
    for name, tensor in named:
        tensors[prefix + name] = tensor.detach().clone()


def write(name):
    torch.manual_seed(20261123)
    net, tensors = Net(name + ".json"), {}
    net.eval()  # the modules have seen zeros while they were made: only now do they begin
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.seen = []
            if module.track_running_stats:
                module.reset_running_stats()
    begin(net)
    for key, tensor in net.state_dict().items():
        tensors["param." + key] = tensor.float() if tensor.is_floating_point() else tensor.clone()
    net.train()
    for module in list(net.modules()):
        if isinstance(module, BatchNorm):
            copy_of(module)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.8)
    for k in range(UPDATES):
        x = single(3 + 2 * torch.randn(ROWS, *net.shape, dtype=torch.float64))
        target = torch.randint(0, 5, (ROWS,))
        tensors[f"input.{k}"], tensors[f"target.{k}"] = x.float(), target
        x = x.clone().requires_grad_()
        loss, output = step(net, x, target)
        if k == 0:
            tensors["loss"], tensors["output"], tensors["grad.input"] = loss, output, x.grad.clone()
            keep(tensors, "grad.", ((n, p.grad) for n, p in net.named_parameters()))
        optimizer.step()
    keep(tensors, "after.", net.state_dict().items())
    net.eval()
    # Without running numbers a micro-batch's own are taken.
    outputs = [net(x) for x in tensors["input.0"].double().chunk(CHUNKS)]
    tensors["infer"] = torch.cat(outputs).detach()
    for key, module in net.named_modules():
        if not isinstance(module, BatchNorm) or "downsample" in key:
            continue
        keep(tensors, "plain." + key + ".", module.plain[0].named_buffers())
        module.load_state_dict({**module.state_dict(), **dict(module.plain[0].named_buffers())})
    outputs = [net(x) for x in tensors["input.0"].double().chunk(CHUNKS)]
    tensors["plain.infer"] = torch.cat(outputs).detach()
    path = os.path.join(FOLDER, name + ".safetensors")
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)
    os.chmod(path, 0o644)
    print(name, os.path.getsize(path), "bytes", float(tensors["loss"]))


if __name__ == "__main__":
    write("batch_layers")
    write("amoeba_layers")
