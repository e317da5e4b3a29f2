# SPDX-License-Identifier: MIT
"""Times a training step of GPT-2 in PyTorch on a GPU: what gpu-gpt2 of Weir's benches is to be
compared with. torch.compile, bf16 by autocast over f32 parameters, scaled_dot_product_attention,
fused AdamW, clipping at 1. Vocabulary padded to a multiple of 64; the head is the embedding.

    python gpt2_gpu.py                     all variants, interleaved
    python gpt2_gpu.py --serve             a harness's turn (bench/peer.h)
    python gpt2_gpu.py --check             counts parameters, loss of one forward pass
    python gpt2_gpu.py --weights FILE      the loss by weights that Weir saved
"""

import peer

VARIANTS = ["compile", "eager"]
LEARNING_RATE = 6e-4
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # the file's are [in, out]


def parse_arguments():
    parser = peer.common_arguments(__doc__.split("\n", 1)[0], VARIANTS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--tokens", type=int, default=50257, help="those that occur")
    parser.set_defaults(untied=False)
    return parser.parse_args()


def make_gpt(torch, a):
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = nn.Linear(a.width, 3 * a.width)
            self.c_proj = nn.Linear(a.width, a.width)

        def forward(self, x):
            rows, tokens, width = x.shape
            q, k, v = (part.view(rows, tokens, a.heads, width // a.heads).transpose(1, 2)
                       for part in self.c_attn(x).split(width, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.c_proj(y.transpose(1, 2).reshape(rows, tokens, width))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc = nn.Linear(a.width, 4 * a.width)
            self.c_proj = nn.Linear(4 * a.width, a.width)

        def forward(self, x):
            return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn = nn.LayerNorm(a.width), Attention()
            self.ln_2, self.mlp = nn.LayerNorm(a.width), Mlp()

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(a.vocab, a.width)
            self.wpe = nn.Embedding(a.context, a.width)
            self.h = nn.ModuleList(Block() for _ in range(a.layers))
            self.ln_f = nn.LayerNorm(a.width)
            self.lm_head = nn.Linear(a.width, a.vocab, bias=False) if a.untied else None
            for name, parameter in self.named_parameters():
                scale = (2 * a.layers) ** -0.5 if name.endswith("c_proj.weight") else 1
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02 * scale)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

        def forward(self, tokens):
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.wte(tokens) + self.wpe(places)
            for block in self.h:
                x = block(x)
            head = self.lm_head if a.untied else self.wte
            return functional.linear(self.ln_f(x), head.weight)

    return Gpt()


def expect(torch, a):
    block = 12 * a.width**2 + 13 * a.width
    return (a.vocab * (2 if a.untied else 1) + a.context + 2) * a.width + a.layers * block


def copy_weights(torch, file, own):
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(file[name].T if name.endswith(TRANSPOSED) else file[name])


def load(torch, model, path):
    file = peer.read_safetensors(torch, path)
    own = dict(model.named_parameters())
    assert file.keys() == own.keys(), file.keys() ^ own.keys()
    copy_weights(torch, file, own)


def make_optimizer(torch, model):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8,
                             fused=True)


def make_batch(torch, a):
    """Rows of one token more than the context: inputs, and targets one further."""
    rows = peer.data(torch, 0, a.batch * (a.context + 1)) % a.tokens
    rows = rows.view(a.batch, a.context + 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def make(torch, name, arguments):
    dtype = torch.bfloat16 if name.endswith("-bf16") else torch.float32
    model = make_gpt(torch, arguments).to(arguments.device, dtype)

    def compute_loss(model, tokens, target):
        logits = model(tokens)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    return peer.Trainer(torch, name, arguments, model, compute_loss,
                            make_optimizer(torch, model), 1.0,
                            make_batch(torch, arguments))


if __name__ == "__main__":
    # Eager keeps twice the memory and is known to be slower: only where it is asked for.
    peer.run(parse_arguments(), VARIANTS[:1], make, load, expect)
