# SPDX-License-Identifier: MIT
"""Times a training step of the U-Net in PyTorch on the CPU: what models/unet of Weir's benches is
to be compared with. f32, BCE-with-logits, fused SGD; NCHW and channels last, eager and compiled.

The model is torchgpipe's benchmark U-Net (convolutions without bias, dropout, instance norm, leaky
ReLU; five levels).

    python unet_eager.py                      all variants, interleaved in random order
    python unet_eager.py --variants eager     one of them
    python unet_eager.py --serve              a harness's turn (bench/peer.h)
    python unet_eager.py --check              counts parameters, loss of one forward pass
"""

import peer

VARIANTS = ["eager", "eager-channels-last", "compile", "compile-channels-last"]
LEARNING_RATE = 0.1
# (num_convs, base_channels) -> parameters, depth 5, as published
PUBLISHED = {(5, 64): 232_687_328, (6, 72): 362_157_516}


def make_parser(doc, variants):
    parser = peer.common_arguments(doc.split("\n", 1)[0], variants, "cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--num-convs", type=int, default=2)
    parser.add_argument("--base-channels", type=int, default=16)
    parser.add_argument("--image", type=int, default=96)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser


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


def expect(torch, a):
    """Parameters by the formula, which is checked against what was published."""
    for (convs, channels), published in PUBLISHED.items():
        with torch.device("meta"):
            built = peer.count(make_unet(torch, 5, convs, channels, 0.1))
        assert built == count_by_formula(5, convs, channels) == published, (built, published)
    for depth, convs, channels in [(1, 1, 2), (2, 1, 4), (3, 3, 6)]:
        model = make_unet(torch, depth, convs, channels, 0.1)
        formula = count_by_formula(depth, convs, channels)
        assert peer.count(model) == formula, (depth, convs, channels, peer.count(model), formula)
        side = 3 << depth if depth > 1 else 5  # an odd one, so that a level is padded
        assert model(torch.rand(2, 3, side, side)).shape == (2, 1, side, side)
    return count_by_formula(a.depth, a.num_convs, a.base_channels)


# ---- steps ---------------------------------------------------------------------------------------


def load(torch, model, path):
    """The file's names begin with the layer's number, and so are in the model's order."""
    file = peer.read_safetensors(torch, path)
    names = sorted(file, key=lambda name: int(name.split(".")[0]))
    own = list(model.parameters())
    assert len(names) == len(own), (len(names), len(own))
    with torch.no_grad():
        for name, parameter in zip(names, own):
            assert parameter.shape == file[name].shape, (name, parameter.shape, file[name].shape)
            parameter.copy_(file[name])


def make_batch(torch, a):
    """Images, and their first planes, which can be learned, as targets."""
    shape = a.batch, 3, a.image, a.image
    images = (peer.data(torch, 0, 3 * a.batch * a.image**2).float() * 2.0**-24).view(shape)
    return images, images[:, :1].contiguous()


def make(torch, name, arguments):
    layout = torch.channels_last if "channels-last" in name else torch.contiguous_format
    model = make_unet(torch, arguments.depth, arguments.num_convs,
                                 arguments.base_channels, arguments.dropout)
    model = model.to(arguments.device, memory_format=layout)
    criterion = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)
    return peer.Trainer(torch, name, arguments, model,
                            lambda model, x, target: criterion(model(x), target), optimizer, 0.0,
                            make_batch(torch, arguments))


if __name__ == "__main__":
    peer.run(make_parser(__doc__, VARIANTS).parse_args(), VARIANTS, make, load, expect)
