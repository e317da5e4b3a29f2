# SPDX-License-Identifier: MIT
"""Times a training step of a GPT in PyTorch on the CPU: what models/gpt-s and gpt-m of Weir's
benches are to be compared with. f32, or bf16 in two ways: by autocast over f32 parameters, and with
all that the model holds in bf16; scaled_dot_product_attention, fused AdamW, clipping at 1, eager and
compiled; no dropout. The model is gpt2_gpu.py's with a head of its own.

    python gpt_eager.py                      all variants, interleaved in random order
    python gpt_eager.py --variants eager     one of them
    python gpt_eager.py --serve              a harness's turn (bench/peer.h)
    python gpt_eager.py --check              counts parameters, loss of one forward pass
"""

import gpt2_gpu
import peer

VARIANTS = ["eager", "compile"]
VARIANTS_BF16 = [name + way for way in ("-autocast", "-bf16") for name in VARIANTS]


def make_parser(doc, variants):
    parser = peer.common_arguments(doc.split("\n", 1)[0], variants, "cpu")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256, help="those that occur")
    parser.set_defaults(untied=True)
    return parser


if __name__ == "__main__":
    arguments = make_parser(__doc__, VARIANTS + VARIANTS_BF16).parse_args()
    peer.run(arguments, VARIANTS_BF16 if arguments.dtype == "bf16" else VARIANTS, gpt2_gpu.make,
             gpt2_gpu.load, gpt2_gpu.expect)
