# SPDX-License-Identifier: MIT
"""Times a training step of the U-Net in PyTorch on the CPU: what Weir's is to be compared with.

The model is torchgpipe's benchmark U-Net (convolutions without bias, dropout, instance norm, leaky
ReLU; five levels), the step zero_grad, forward, BCE-with-logits, backward and SGD, in f32.

    python unet_eager.py                      all variants, interleaved in random order
    python unet_eager.py --variants eager     one of them
    python unet_eager.py --serve              a harness's turn: one step for each line of input
    python unet_eager.py --check              only counts parameters

One JSON line per variant: {"name", "median", "p10", "p90", "samples", ...}, times in seconds. With
--serve first {"ready": [names]}, then for each name read {"name", "seconds"}. What cannot run here
(torch.compile without a compiler) is {"name", "skipped": reason}. Messages go to stderr.

What is fair: as many threads as asked for, of one OpenMP team; and an allocator that keeps its
memory. By default glibc gives every large tensor back to the system at once and takes page faults
for the next one, which halves the speed of convolutions; so the script starts itself again with
one arena that never maps, never trims and uses huge pages. (MALLOC_MMAP_THRESHOLD_ alone does not
do: values above 32 MiB are ignored, and the thread of the backward pass has an arena of its own.)
"""

import argparse
import json
import os
import random
import statistics
import sys
import time

SETTINGS = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
VARIANTS = ["eager", "eager-channels-last", "compile", "compile-channels-last"]
# (num_convs, base_channels) -> parameters, depth 5, as published
PUBLISHED = {(5, 64): 232_687_328, (6, 72): 362_157_516}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--num-convs", type=int, default=2)
    parser.add_argument("--base-channels", type=int, default=16)
    parser.add_argument("--image", type=int, default=96)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def restart_with_settings(threads):
    """malloc and OpenMP read their settings once, before Python begins."""
    wanted = dict(SETTINGS, OMP_NUM_THREADS=str(threads))
    if all(os.environ.get(key) == value for key, value in wanted.items()):
        return
    os.environ.update(wanted)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def tell(**line):
    print(json.dumps(line), flush=True)


# ---- the model ---------------------------------------------------------------------------------


def widths(depth, channels):
    """(in, mid, out) of each stack: encoders from the top, the bottleneck, decoders from below."""
    down = [(3 if i == 0 else channels << (i - 1), channels << i, channels << i)
            for i in range(depth)]
    deepest = channels << (depth - 1)
    up = [(channels << (i + 1), (channels << i) // 2, (channels << i) // 2)
          for i in reversed(range(depth))]
    return down, (deepest, 2 * deepest, deepest), up


def stack_pairs(width, convs):
    first, middle, last = width
    if convs == 1:
        return [(first, last)]
    return [(first, middle)] + [(middle, middle)] * (convs - 2) + [(middle, last)]


def count_by_formula(depth, convs, channels):
    down, bottom, up = widths(depth, channels)
    pairs = [pair for width in [*down, bottom, *up] for pair in stack_pairs(width, convs)]
    return 9 * sum(a * b for a, b in pairs) + channels // 2


def make_unet(torch, depth, convs, channels, dropout):
    nn = torch.nn

    def stack(width):
        layers = []
        for a, b in stack_pairs(width, convs):
            layers += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.Dropout2d(dropout),
                       nn.InstanceNorm2d(b), nn.LeakyReLU(0.01)]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            down, bottom, up = widths(depth, channels)
            self.down = nn.ModuleList(stack(width) for width in down)
            self.bottom = stack(bottom)
            self.up = nn.ModuleList(stack(width) for width in up)
            self.pool = nn.MaxPool2d(2, 2)
            self.grow = nn.Upsample(scale_factor=2, mode="nearest")
            self.segment = nn.Conv2d(channels // 2, 1, 1, bias=False)

        def forward(self, x):
            skips = []
            for encode in self.down:
                x = encode(x)
                skips.append(x)
                x = self.pool(x)
            x = self.bottom(x)
            for decode in self.up:
                x, skip = self.grow(x), skips.pop()
                rows, columns = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
                if rows or columns:
                    x = nn.functional.pad(x, (0, columns, 0, rows))
                x = decode(torch.cat((x, skip), 1))
            return self.segment(x)

    return UNet()


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def check_counts(torch, arguments):
    """The module against the formula, and the formula against what was published."""
    for (convs, channels), published in PUBLISHED.items():
        with torch.device("meta"):
            built = count(make_unet(torch, 5, convs, channels, 0.1))
        assert built == count_by_formula(5, convs, channels) == published, (built, published)
    for depth, convs, channels in [(1, 1, 2), (2, 1, 4), (3, 3, 6),
                                   (arguments.depth, arguments.num_convs, arguments.base_channels)]:
        model = make_unet(torch, depth, convs, channels, 0.1)
        formula = count_by_formula(depth, convs, channels)
        assert count(model) == formula, (depth, convs, channels, count(model), formula)
        side = 3 << depth if depth > 1 else 5  # an odd one, so that a level is padded
        assert model(torch.rand(2, 3, side, side)).shape == (2, 1, side, side)
    return formula


# ---- steps -------------------------------------------------------------------------------------


class Trainer:
    def __init__(self, torch, name, arguments):
        self.name = name
        torch.manual_seed(arguments.seed)
        shape = arguments.batch, 3, arguments.image, arguments.image
        last = "channels-last" in name
        layout = torch.channels_last if last else torch.contiguous_format
        model = make_unet(torch, arguments.depth, arguments.num_convs, arguments.base_channels,
                          arguments.dropout).to(memory_format=layout)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model = torch.compile(model) if name.startswith("compile") else model
        self.loss = torch.nn.BCEWithLogitsLoss()
        self.input = torch.rand(shape).to(memory_format=layout)
        self.target = torch.rand(shape[0], 1, *shape[2:]).to(memory_format=layout)

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.input), self.target)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, float(loss.detach())


def make_trainers(torch, arguments):
    trainers = []
    for name in arguments.variants:
        try:
            trainer = Trainer(torch, name, arguments)
            losses = [trainer.step()[1] for _ in range(arguments.warm_up)]
        except Exception as error:  # compile: no compiler, or one that it does not like
            if not name.startswith("compile"):
                raise
            tell(name=f"unet/torch/{name}", skipped=f"{type(error).__name__}: {error}"[:300])
            continue
        assert all(loss == loss and 0.0 < loss < 10.0 for loss in losses), (name, losses)
        print(f"{name}: losses of the warm-up {losses}", file=sys.stderr, flush=True)
        trainers.append(trainer)
    return trainers


def run_all(torch, trainers, arguments, parameters):
    samples = {trainer.name: [] for trainer in trainers}
    order = random.Random(arguments.seed)
    for _ in range(arguments.repetitions):
        for trainer in order.sample(trainers, len(trainers)):
            samples[trainer.name].append(trainer.step()[0])
    for trainer in trainers:
        own = samples[trainer.name]
        tenths = statistics.quantiles(own, n=10, method="inclusive") if len(own) > 1 else own * 9
        tell(name=f"unet/torch/{trainer.name}", median=statistics.median(own), p10=tenths[0],
             p90=tenths[8], samples=own, torch=torch.__version__,
             threads=torch.get_num_threads(), parameters=parameters,
             configuration={key: getattr(arguments, key) for key in
                            ("depth", "num_convs", "base_channels", "image", "batch", "dropout")},
             environment={key: os.environ[key] for key in [*SETTINGS, "OMP_NUM_THREADS"]})


def serve(trainers):
    named = {trainer.name: trainer for trainer in trainers}
    tell(ready=list(named))
    for line in sys.stdin:
        name = line.strip()
        if name not in named:
            tell(error=f"{name}: not one of {', '.join(named)}")
            continue
        tell(name=name, seconds=named[name].step()[0])


def main():
    arguments = parse_arguments()
    restart_with_settings(arguments.threads)
    import torch  # after the settings

    torch.set_num_threads(arguments.threads)
    parameters = check_counts(torch, arguments)
    if arguments.check:
        tell(name="unet/torch/parameters", parameters=parameters, torch=torch.__version__)
        return
    trainers = make_trainers(torch, arguments)
    if arguments.serve:
        serve(trainers)
    else:
        run_all(torch, trainers, arguments, parameters)


if __name__ == "__main__":
    main()
