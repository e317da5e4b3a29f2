# SPDX-License-Identifier: MIT
"""Times a training step of ResNet-101 or AmoebaNet-D in PyTorch on the CPU: what models/resnet101
and models/amoebanetd of Weir's benches are to be compared with. f32, cross-entropy, fused SGD; NCHW
and channels last, eager and compiled.

    python classifier_eager.py resnet101                        all variants, in random order
    python classifier_eager.py amoebanetd --variants eager      one of them
    python classifier_eager.py resnet101 --serve                a harness's turn (bench/peer.h)
    python classifier_eager.py resnet101 --check                counts parameters, one loss
"""

import sys

import peer

VARIANTS = ["eager", "eager-channels-last", "compile", "compile-channels-last"]
LEARNING_RATE = 0.1
RESNET = 44_549_160  # parameters of 1000 classes
AMOEBANETS = {(18, 208): 81_505_540, (18, 256): 122_470_120}  # likewise; published


def make_parser():
    parser = peer.common_arguments(__doc__.split("\n", 1)[0], VARIANTS, "cpu")
    parser.add_argument("model", choices=["resnet101", "amoebanetd"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--filters", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--image", type=int, default=224)
    return parser


def make_model(a, classes, size):
    import image_models

    if a.model == "resnet101":
        return image_models.ResNet101(classes)
    return image_models.AmoebaNetD(*size, classes)


def expect(torch, a):
    """Of other sizes than published there is no formula: what was asked for, or what there is."""
    published = {None: RESNET} if a.model == "resnet101" else AMOEBANETS
    with torch.device("meta"):
        for size, parameters in published.items():
            built = peer.count(make_model(a, 1000, size))
            assert built == parameters, (size, built, parameters)
        own = peer.count(make_model(a, a.classes, (a.layers, a.filters)))
    return a.parameters or own


def load(torch, model, path):
    """The names are the same."""
    missing, unknown = model.load_state_dict(peer.read_safetensors(torch, path), strict=False)
    assert not unknown and all(name.endswith("num_batches_tracked") for name in missing), (
        missing, unknown)


def make_batch(torch, a):
    shape = a.batch, 3, a.image, a.image
    images = (peer.data(torch, 0, 3 * a.batch * a.image**2).float() * 2.0**-24).view(shape)
    return images, torch.arange(a.batch) * 7 % a.classes


def make(torch, name, a):
    layout = torch.channels_last if "channels-last" in name else torch.contiguous_format
    model = make_model(a, a.classes, (a.layers, a.filters))
    model = model.to(a.device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)
    criterion = torch.nn.CrossEntropyLoss()
    return peer.Trainer(torch, name, a, model,
                        lambda model, x, target: criterion(model(x), target), optimizer, 0.0,
                        make_batch(torch, a))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {sys.argv[0]} resnet101|amoebanetd [options]")
    peer.run(make_parser().parse_args(), VARIANTS, make, load, expect)
