# SPDX-License-Identifier: MIT
"""Times a training step of torchgpipe's benchmark U-Net in PyTorch on a GPU: what gpu-unet of
Weir's benches is to be compared with. torch.compile, bf16 by autocast over f32 parameters,
BCE-with-logits, fused SGD; NCHW and channels last. The model is unet_eager.py's.

    python unet_gpu.py                     all variants, interleaved
    python unet_gpu.py --serve             a harness's turn (bench/peer.h)
    python unet_gpu.py --check             counts parameters, loss of one forward pass
    python unet_gpu.py --weights FILE      the loss by weights that Weir saved
"""

import gpu_peer
import unet_eager

VARIANTS = ["compile-channels-last", "compile", "eager-channels-last", "eager"]
LEARNING_RATE = 0.1


def parse_arguments():
    parser = gpu_peer.common_arguments(__doc__.split("\n", 1)[0], VARIANTS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--num-convs", type=int, default=5)
    parser.add_argument("--base-channels", type=int, default=64)
    parser.add_argument("--image", type=int, default=192)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser.parse_args()


def load(torch, model, path):
    """The file's names begin with the layer's number, and so are in the model's order."""
    file = gpu_peer.read_safetensors(torch, path)
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
    images = (gpu_peer.data(torch, 0, 3 * a.batch * a.image**2).float() * 2.0**-24).view(shape)
    return images, images[:, :1].contiguous()


def make(torch, name, arguments):
    layout = torch.channels_last if "channels-last" in name else torch.contiguous_format
    model = unet_eager.make_unet(torch, arguments.depth, arguments.num_convs,
                                 arguments.base_channels, arguments.dropout)
    model = model.to(arguments.device, memory_format=layout)
    criterion = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE,
                                fused=arguments.device == "cuda")
    return gpu_peer.Trainer(torch, name, arguments, model,
                            lambda model, x, target: criterion(model(x), target), optimizer, 0.0,
                            make_batch(torch, arguments))


if __name__ == "__main__":
    gpu_peer.run(parse_arguments(), VARIANTS[:2], make, load)
