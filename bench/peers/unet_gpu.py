# SPDX-License-Identifier: MIT
"""Times a training step of torchgpipe's benchmark U-Net in PyTorch on a GPU: what gpu-unet of
Weir's benches is to be compared with. torch.compile, bf16 by autocast over f32 parameters,
BCE-with-logits, fused SGD; NCHW and channels last. The model is unet_eager.py's.

    python unet_gpu.py                     all variants, interleaved
    python unet_gpu.py --serve             a harness's turn (bench/peer.h)
    python unet_gpu.py --check             counts parameters, loss of one forward pass
    python unet_gpu.py --weights FILE      the loss by weights that Weir saved
"""

import peer
import unet_eager

VARIANTS = ["compile-channels-last", "compile", "eager-channels-last", "eager"]


def parse_arguments():
    parser = peer.common_arguments(__doc__.split("\n", 1)[0], VARIANTS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--num-convs", type=int, default=5)
    parser.add_argument("--base-channels", type=int, default=64)
    parser.add_argument("--image", type=int, default=192)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser.parse_args()


if __name__ == "__main__":
    peer.run(parse_arguments(), VARIANTS[:2], unet_eager.make, unet_eager.load, unet_eager.expect)
