# SPDX-License-Identifier: MIT
"""ResNet-101 as torchvision has it, and AmoebaNet-D as torchgpipe's benchmark has it, slips included,
under the names that Weir's parameters have. `norm(channels)` makes a batch norm.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


# ---- ResNet-101 -----------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    def __init__(self, fan_in, planes, stride, norm):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(fan_in, planes, 1, bias=False), norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = norm(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), norm(4 * planes)
        self.downsample = None
        if stride != 1 or fan_in != 4 * planes:
            self.downsample = nn.Sequential(nn.Conv2d(fan_in, 4 * planes, 1, stride, bias=False),
                                            norm(4 * planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet101(nn.Module):
    def __init__(self, classes, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64)
        fan_in = 64
        for i, (count, planes) in enumerate(zip([3, 4, 23, 3], [64, 128, 256, 512])):
            blocks = []
            for k in range(count):
                blocks.append(Bottleneck(fan_in, planes, 2 if i > 0 and k == 0 else 1, norm))
                fan_in = 4 * planes
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(2048, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


# ---- AmoebaNet-D ----------------------------------------------------------------------------------


def unit(norm, fan_in, fan_out, kernel=1, stride=1, padding=0):
    return [nn.ReLU(), nn.Conv2d(fan_in, fan_out, kernel, stride, padding, bias=False),
            norm(fan_out)]


class FactorizedReduce(nn.Module):
    def __init__(self, norm, fan_in, fan_out):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out // 2, 1, stride=2, bias=False)
        self.conv2 = nn.Conv2d(fan_in, fan_out // 2, 1, stride=2, bias=False)
        self.bn = norm(fan_out)

    def forward(self, x):
        x = F.relu(x)
        return self.bn(torch.cat([self.conv1(x), self.conv2(F.pad(x[:, :, 1:, 1:], (0, 1, 0, 1)))],
                                 dim=1))


def none(norm, c, stride):
    return nn.Identity() if stride == 1 else FactorizedReduce(norm, c, c)


def avg_pool_3x3(norm, c, stride):
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


max_pool_3x3 = avg_pool_3x3  # upstream's slip


def max_pool_2x2(norm, c, stride):
    return nn.MaxPool2d(2, stride, 0)


def conv_1x1(norm, c, stride):
    return nn.Sequential(*unit(norm, c, c, 1, stride))


def conv_3x3(norm, c, stride):
    return nn.Sequential(*unit(norm, c, c // 4), *unit(norm, c // 4, c // 4, 3, stride, 1),
                         *unit(norm, c // 4, c))


def conv_1x7_7x1(norm, c, stride):
    return nn.Sequential(*unit(norm, c, c // 4),
                         *unit(norm, c // 4, c // 4, (1, 7), (1, stride), (0, 3)),
                         *unit(norm, c // 4, c // 4, (7, 1), (stride, 1), (3, 0)),
                         *unit(norm, c // 4, c))


NORMAL = [(1, conv_1x1), (1, max_pool_3x3), (1, none), (0, conv_1x7_7x1), (0, conv_1x1),
          (0, conv_1x7_7x1), (2, max_pool_3x3), (2, none), (1, avg_pool_3x3), (5, conv_1x1)]
REDUCTION = [(0, max_pool_2x2), (0, max_pool_3x3), (2, none), (1, conv_3x3), (2, conv_1x7_7x1),
             (2, max_pool_3x3), (3, none), (1, max_pool_2x2), (2, avg_pool_3x3), (3, conv_1x1)]


class Cell(nn.Module):
    """From the state (previous, before) to (next, previous); a lone tensor stands for both."""

    def __init__(self, norm, before, prev, c, reduction, reduction_prev):
        super().__init__()
        self.reduce1 = nn.Sequential(*unit(norm, prev, c))
        self.reduce2 = (FactorizedReduce(norm, before, c) if reduction_prev else
                        nn.Sequential(*unit(norm, before, c)) if before != c else nn.Identity())
        steps = REDUCTION if reduction else NORMAL
        self.indices = [i for i, _ in steps]
        self.concat = [4, 5, 6] if reduction else [0, 3, 4, 6]
        self.operations = nn.ModuleList(
            make(norm, c, 2 if reduction and i < 2 else 1) for i, make in steps)

    def forward(self, state):
        s1, s2 = state if isinstance(state, tuple) else (state, state)
        states = [self.reduce1(s1), self.reduce2(s2)]
        for k in range(0, len(self.operations), 2):
            a, b = (op(states[i]) for op, i in
                    zip(self.operations[k:k + 2], self.indices[k:k + 2]))
            states.append(a + b)
        return torch.cat([states[i] for i in self.concat], dim=1), s1


class Stem(nn.Module):
    def __init__(self, norm, fan_out):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, fan_out, 3, 2, 1, bias=False), norm(fan_out)

    def forward(self, x):
        return self.bn(self.conv(F.relu(x)))


class Classify(nn.Module):
    def __init__(self, fan_in, classes):
        super().__init__()
        self.fc = nn.Linear(fan_in, classes)

    def forward(self, state):
        return self.fc(F.avg_pool2d(state[0], 7).flatten(1))


class AmoebaNetD(nn.Sequential):
    def __init__(self, layers, filters, classes, norm=nn.BatchNorm2d):
        super().__init__()
        channels = before = prev = filters // 4
        self.add_module("stem1", Stem(norm, channels))
        plan = [("stem2", True), ("stem3", True)]
        for group in (1, 3, 5):
            plan += [(f"cell{group}_normal{i + 1}", False) for i in range(layers // 3)]
            plan += [(f"cell{group + 1}_reduction", True)] * (group < 5)
        reduction_prev = False
        for name, reduction in plan:
            channels *= 2 if reduction else 1
            self.add_module(name, Cell(norm, before, prev, channels, reduction, reduction_prev))
            before, prev = prev, channels * (3 if reduction else 4)
            reduction_prev = reduction
        self.add_module("classify", Classify(prev, classes))
