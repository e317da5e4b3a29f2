# SPDX-License-Identifier: MIT
"""Writes unets.safetensors: U-Nets of 2 to 5 levels at odd sizes, for tests/net/test_golden_unet.c.

usage: python tests/golden/make_unets.py        (PyTorch, safetensors; the file is committed)

Float64 autograd of torchgpipe's U-Net without dropout; parameters, images and masks are numbers
that float32 holds. Tensors of case D (the depth): D/param.NAME (F32), D/input, D/target (F32), D/loss,
D/output, D/grad.NAME, D/grad.input (F64).
"""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

# depth: (units per level, base channels, height, width, rows)
CASES = {2: (2, 4, 13, 11, 3), 3: (1, 4, 19, 21, 2), 4: (2, 2, 35, 17, 2), 5: (1, 2, 37, 71, 2)}


class Unet(nn.Module):
    """A list of convolutions with their indices in Weir's list; the rest is code."""

    def __init__(self, depth, units, base):
        super().__init__()
        self.depth, self.units, self.index = depth, units, 0
        self.convs, self.names = nn.ModuleList(), []
        channels = 3
        for level in range(depth):
            channels = self.stack(channels, base << level, base << level)
            self.index += 2  # stash, max_pool2d
        channels = self.stack(channels, base << depth, base << (depth - 1))
        for level in reversed(range(depth)):
            self.index += 2  # upsample, pop_concat
            out = base // 2 if level == 0 else base << (level - 1)
            channels = self.stack(channels + (base << level), out, out)
        self.conv(channels, 1, 1)

    def conv(self, fan_in, fan_out, side):
        self.convs.append(nn.Conv2d(fan_in, fan_out, side, padding=side // 2, bias=False))
        self.names.append(f"{self.index}.weight")

    def stack(self, fan_in, mid, out):
        for unit in range(self.units):
            to = out if unit == self.units - 1 else mid
            self.conv(fan_in, to, 3)
            self.index += 4  # conv2d, dropout2d, instance_norm2d, leaky_relu
            fan_in = to
        return fan_in

    def forward(self, x):
        convs, skips = iter(self.convs), []

        def stack(x):
            for _ in range(self.units):
                x = F.leaky_relu(F.instance_norm(next(convs)(x)), 0.01)
            return x

        for _ in range(self.depth):
            x = stack(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = stack(x)
        for skip in reversed(skips):
            x = F.interpolate(x, scale_factor=2)
            x = F.pad(x, (0, skip.shape[3] - x.shape[3], 0, skip.shape[2] - x.shape[2]))
            x = stack(torch.cat((x, skip), 1))
        return next(convs)(x)


if __name__ == "__main__":
    torch.manual_seed(31)
    torch.set_num_threads(1)
    tensors = {}
    for depth, (units, base, height, width, rows) in CASES.items():
        net = Unet(depth, units, base).double()
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(p.float().double())
        x = torch.randn(rows, 3, height, width).double().requires_grad_()
        target = torch.rand(rows, 1, height, width).double()
        output = net(x)
        loss = F.binary_cross_entropy_with_logits(output, target)
        loss.backward()
        made = {"input": x.detach().float(), "target": target.float(), "loss": loss.detach(),
                "output": output.detach(), "grad.input": x.grad}
        for name, conv in zip(net.names, net.convs):
            made[f"param.{name}"] = conv.weight.detach().float()
            made[f"grad.{name}"] = conv.weight.grad
        tensors.update({f"{depth}/{k}": v.contiguous().clone() for k, v in made.items()})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "unets.safetensors")
    save_file(tensors, path)
    print(os.path.getsize(path), path)
