# SPDX-License-Identifier: MIT
"""Times a training step of SmolLM2-135M by Hugging Face's transformers on the CPU, in full or of
peft's adapters: what models/smollm2 and models/smollm2-lora of Weir's benches are to be compared
with. f32, scaled_dot_product_attention, fused AdamW, clipping at 1; eager and compiled.

    python decoder_eager.py                     all variants, in random order
    python decoder_eager.py --lora-rank 16      adapters beside every product but the head
    python decoder_eager.py --serve             a harness's turn (bench/peer.h)
    python decoder_eager.py --check             counts parameters, loss of one forward pass
"""

import gpt2_gpu
import peer

VARIANTS = ["eager", "compile"]
PUBLISHED = 134_515_008
PRODUCTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_parser():
    parser = peer.common_arguments(__doc__.split("\n", 1)[0], VARIANTS, "cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--lora-rank", type=int, default=0)
    return parser


def make_decoder(a):
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=a.vocab, hidden_size=576, intermediate_size=1536,
        num_hidden_layers=a.layers, num_attention_heads=9, num_key_value_heads=3,
        max_position_embeddings=a.context, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5}, use_cache=False,
        attn_implementation="sdpa")
    model = transformers.LlamaForCausalLM(config)
    if a.lora_rank == 0:
        return model
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(
        r=a.lora_rank, lora_alpha=2 * a.lora_rank, target_modules=PRODUCTS))


def expect(torch, a):
    """Of other sizes than published there is no formula: what was asked for."""
    return a.parameters or PUBLISHED + (a.lora_rank * 305_280)


def load(torch, model, path):
    """Adapters' names are peft's without what it adds."""
    file = peer.read_safetensors(torch, path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for part in ("base_model.model.", ".base_layer", ".default"):
                name = name.replace(part, "")
            parameter.copy_(file.pop(name))
    assert not file, file.keys()


def make(torch, name, a):
    from importlib.metadata import version

    a.with_package = f", transformers {version('transformers')}"
    if a.lora_rank > 0:
        a.with_package += f", peft {version('peft')}"
    model = make_decoder(a).train()
    learns = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr=1e-4, fused=True)
    a.tokens = a.vocab

    def compute_loss(model, tokens, target):
        logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    return peer.Trainer(torch, name, a, model, compute_loss, optimizer, 1.0,
                        gpt2_gpu.make_batch(torch, a))


if __name__ == "__main__":
    peer.run(make_parser().parse_args(), VARIANTS, make, load, expect)
