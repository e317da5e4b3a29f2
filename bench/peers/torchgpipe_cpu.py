# SPDX-License-Identifier: MIT
"""Times a training step by torchgpipe on the CPU: some "devices", all the CPU, f32. The models are
gpt_eager.py's and unet_eager.py's as lists of layers, the U-Net's skips as torchgpipe's own.
Equal devices share one worker thread there, so that stages do not overlap, but it trains.

    python torchgpipe_cpu.py gpt                 all variants, interleaved in random order
    python torchgpipe_cpu.py unet --serve        a harness's turn (bench/peer.h)
    python torchgpipe_cpu.py gpt --check         counts parameters, loss of one forward pass
"""

import importlib.metadata
import sys

import gpt2_gpu
import gpt_eager
import peer
import unet_eager

VARIANTS = ["torchgpipe-never", "torchgpipe-except-last", "torchgpipe-always"]
USUAL = VARIANTS[:2]
SHIFTS = 1  # cuts that are tried on either side of the middle one


def open_torchgpipe():
    try:
        import torchgpipe
    except ImportError as error:
        peer.tell(error=f"{sys.executable} has no torchgpipe: {error}")
        sys.exit(peer.MISSING)
    return torchgpipe


# ---- lists of layers -----------------------------------------------------------------------------


def gpt_layers(torch, a):
    whole = gpt2_gpu.make_gpt(torch, a)

    class Begin(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = whole.wte, whole.wpe

        def forward(self, x):
            return self.wte(x) + self.wpe(torch.arange(x.shape[1]))

    return [Begin(), *whole.h, torch.nn.Sequential(whole.ln_f, whole.lm_head)], whole


def unet_layers(torch, a):
    from torchgpipe.skip import Namespace, pop, skippable, stash

    whole = unet_eager.make_unet(torch, a.depth, a.num_convs, a.base_channels, a.dropout)

    @skippable(stash=["skip"])
    class Keep(torch.nn.Module):
        def forward(self, x):
            yield stash("skip", x)
            return x

    @skippable(pop=["skip"])
    class Join(torch.nn.Module):
        def forward(self, x):
            skip = yield pop("skip")
            rows, columns = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
            if rows or columns:
                x = torch.nn.functional.pad(x, (0, columns, 0, rows))
            return torch.cat((x, skip), 1)

    spaces, layers = [Namespace() for _ in whole.down], []
    for space, encode in zip(spaces, whole.down):
        layers += [encode, Keep().isolate(space), whole.pool]
    layers.append(whole.bottom)
    for space, decode in zip(reversed(spaces), whole.up):
        layers += [whole.grow, Join().isolate(space), decode]
    # torchgpipe takes no layer twice, and these hold nothing.
    fresh = {id(whole.pool): lambda: torch.nn.MaxPool2d(2, 2),
             id(whole.grow): lambda: torch.nn.Upsample(scale_factor=2, mode="nearest")}
    layers = [fresh[id(layer)]() if id(layer) in fresh else layer for layer in layers]
    return [*layers, whole.segment], whole


# ---- variants ------------------------------------------------------------------------------------


def parse_arguments():
    models = {"gpt": gpt_eager.make_parser, "unet": unet_eager.make_parser}
    if len(sys.argv) < 2 or sys.argv[1] not in models:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(models)} [options]")
    parser = models[sys.argv[1]](__doc__, VARIANTS)
    parser.add_argument("model", choices=models)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--devices", type=int, default=2)
    parser.set_defaults(variants=USUAL)
    return parser.parse_args()


def make_pipe(torch, name, arguments, cut):
    layers, whole = (gpt_layers if arguments.model == "gpt" else unet_layers)(torch, arguments)
    devices, balance = arguments.devices, [len(layers) // arguments.devices] * arguments.devices
    balance[-1] += len(layers) - sum(balance)
    balance[0], balance[-1] = balance[0] + cut, balance[-1] - cut
    pipe = open_torchgpipe().GPipe(
        torch.nn.Sequential(*layers), balance, devices=["cpu"] * devices, chunks=arguments.chunks,
        checkpoint=name.removeprefix("torchgpipe-").replace("-", "_"))
    object.__setattr__(pipe, "whole", whole)  # no part of it: the same parameters by other names
    return pipe


def make_trainer(torch, name, arguments, cut):
    pipe = make_pipe(torch, name, arguments, cut)
    if arguments.model == "gpt":
        def compute_loss(model, tokens, target):
            return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())

        return peer.Trainer(torch, name, arguments, pipe, compute_loss,
                            gpt2_gpu.make_optimizer(torch, pipe), 1.0,
                            gpt2_gpu.make_batch(torch, arguments))
    criterion = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(pipe.parameters(), lr=unet_eager.LEARNING_RATE, fused=True)
    return peer.Trainer(torch, name, arguments, pipe,
                        lambda model, x, target: criterion(model(x), target), optimizer, 0.0,
                        unet_eager.make_batch(torch, arguments))


def make(torch, name, arguments):
    """By the cut that is fastest."""
    package = f"torchgpipe {importlib.metadata.version('torchgpipe')}"
    arguments.with_package = f", {package}, {arguments.chunks} chunks"
    fastest = {}
    for cut in range(-SHIFTS, SHIFTS + 1):
        trainer = make_trainer(torch, name, arguments, cut)
        trainer.step()
        fastest[cut] = trainer.step()[0]
    return make_trainer(torch, name, arguments, min(fastest, key=fastest.get))


def load(torch, pipe, path):
    of = gpt2_gpu if hasattr(pipe.whole, "wte") else unet_eager
    of.load(torch, pipe.whole, path)


if __name__ == "__main__":
    asked = parse_arguments()
    of = gpt2_gpu if asked.model == "gpt" else unet_eager
    if not (asked.check or asked.weights):  # those are of the model
        peer.open_torch(asked)
        open_torchgpipe()
        peer.run(asked, VARIANTS, make, load, of.expect)
    else:
        peer.run(asked, ["eager"], of.make, of.load, of.expect)
