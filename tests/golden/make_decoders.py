# SPDX-License-Identifier: MIT
"""Writes the reference numbers of decoders that tests/net/test_golden_nets.c compares with.

usage: python tests/golden/make_decoders.py

Models are those of Hugging Face's transformers (5.23; PyTorch 2.15, safetensors), with adapters of its
peft (0.21), in float64, but
for what they compute in float32 whatever their dtype: their RMSNorm is PyTorch's here, frequencies are
rounded to float32 once, and cosines and sines are float64's of the same float32 angles. The files' form is make_nets.py's.
"""
import peft
import torch
import torch.nn.functional as F
import transformers

from make_nets import UPDATES, gradients, save, single, train

ROWS, CONTEXT, VOCAB = 4, 12, 20
SIZES = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             rms_norm_eps=1e-5, initializer_range=0.3, attn_implementation="sdpa")
MODELS = {
    "llama": (transformers.LlamaConfig, dict(
        attention_bias=True, mlp_bias=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 16})),
    "mistral": (transformers.MistralConfig, dict(sliding_window=5, num_key_value_heads=1)),
    "qwen2": (transformers.Qwen2Config, dict(tie_word_embeddings=True)),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=6, tie_word_embeddings=True)),
}


def norm(module, x):
    return F.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)


def frequencies(module):
    """As module.inv_freq, which rounds on the way."""
    p = module.config.rope_parameters
    size = 2 * module.inv_freq.numel()
    plain = (p["rope_theta"] ** (-torch.arange(0, size, 2).double() / size)).float().double()
    if p["rope_type"] == "default":
        return plain.float()
    turns = p["original_max_position_embeddings"] * plain / (2 * torch.pi)
    low, high = p["low_freq_factor"], p["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1)
    scaled = ((1 - share) * plain / p["factor"] + share * plain).float()
    assert torch.allclose(scaled, module.inv_freq.float(), rtol=1e-6)
    return scaled


def angles(module, x, position_ids):
    f = frequencies(module)[None, None, :] * position_ids.float()[:, :, None]
    f = torch.cat((f, f), dim=2).double()
    return f.cos() * module.attention_scaling, f.sin() * module.attention_scaling


def exact(model):
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm.__get__(module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = angles.__get__(module)
    return model


GPT2 = dict(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=4, n_positions=CONTEXT, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.3, tie_word_embeddings=False)
LORA_UPDATES = 10
LORA = {  # the same stand in test_golden_nets.c
    "llama": dict(r=3, lora_alpha=5, target_modules="all-linear"),
    "qwen2": dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True),
    "gpt2": dict(r=4, lora_alpha=4, target_modules=["c_attn", "mlp.c_proj"]),
}


def base(name):
    if name == "gpt2":
        config = transformers.GPT2Config(**GPT2)
    else:
        kind, more = MODELS[name]
        config = kind(**{**SIZES, **more})
    model = exact(transformers.AutoModelForCausalLM.from_config(config).double())
    for key, tensor in model.named_parameters():
        if "norm" in key or "bias" in key:
            tensor.data.add_(0.3 * torch.randn_like(tensor))
        tensor.data.copy_(single(tensor.data))
    return config, model


def loss(output, target):
    return F.cross_entropy(output.reshape(-1, VOCAB), target.reshape(-1))


def make_batches(count):
    return [(torch.randint(VOCAB, (ROWS, CONTEXT)), torch.randint(VOCAB, (ROWS, CONTEXT)))
            for _ in range(count)]


def sgd(p):
    return torch.optim.SGD(p.values(), momentum=0.8)


def make_lora(name):
    """Gradients and numbers after updates are of adapters alone: all else is frozen."""
    model = peft.get_peft_model(base(name)[1], peft.LoraConfig(**LORA[name]))
    full, parameters, learned = {}, {}, {}
    for key, tensor in model.named_parameters():
        if "lora_" in key:
            tensor.data.copy_(single(0.3 * torch.randn_like(tensor)))
        own = key.removeprefix("base_model.model.").removeprefix("transformer.")
        own = own.replace(".base_layer", "").replace(".default", "")
        full[own], parameters[own] = key, tensor.detach()
        if tensor.requires_grad:
            learned[own] = parameters[own]

    def forward(p, tokens):
        return torch.func.functional_call(
            model, {full[key]: tensor for key, tensor in p.items()}, (tokens,)).logits

    batches = make_batches(LORA_UPDATES)
    made = gradients(forward, loss, learned, batches[0])
    made.update(train(forward, loss, learned, batches, sgd, 0.5, lambda update: 0.05))
    save(f"lora_{name}.safetensors", parameters, batches, made)


def make(name):
    config, model = base(name)
    parameters = {key: tensor.detach() for key, tensor in model.named_parameters()}

    def forward(p, tokens):
        if config.tie_word_embeddings:
            p = {**p, "lm_head.weight": p["model.embed_tokens.weight"]}
        return torch.func.functional_call(model, p, (tokens,)).logits

    batches = make_batches(UPDATES)
    made = gradients(forward, loss, parameters, batches[0])
    made.update(train(forward, loss, parameters, batches, sgd, 0.5, lambda update: 0.05))
    save(f"decoder_{name}.safetensors", parameters, batches, made)


# ---- rows of several documents ----------------------------------------------------------------------

PACKED = ["llama", "mistral", "qwen3"]


def begins(rows):
    """Where the document of each token begins."""
    starts = torch.rand(rows, CONTEXT) < 0.25
    starts[:, 0] = True
    return torch.where(starts, torch.arange(CONTEXT), 0).cummax(dim=1).values


def make_packed(name):
    """transformers' own numbers for positions that begin anew, and a mask with a block for each
    document; a window, where there is one, stands in the mask too."""
    config, model = base(name)
    parameters = {key: tensor.detach() for key, tensor in model.named_parameters()}
    window = getattr(config, "sliding_window", None) or CONTEXT

    def forward(p, rows):
        tokens, first = rows[:, 0], rows[:, 1]
        place = torch.arange(CONTEXT)
        distance = place[:, None] - place[None, :]
        seen = (distance >= 0) & (distance < window) & (first[:, :, None] == first[:, None, :])
        mask = torch.where(seen, 0.0, -torch.inf).double()[:, None]
        if config.tie_word_embeddings:
            p = {**p, "lm_head.weight": p["model.embed_tokens.weight"]}
        return torch.func.functional_call(
            model, p, (tokens,), dict(attention_mask=mask, position_ids=place - first)).logits

    batches = [(torch.stack((tokens, begins(ROWS)), dim=1), target)
               for tokens, target in make_batches(UPDATES)]
    made = gradients(forward, loss, parameters, batches[0])
    made.update(train(forward, loss, parameters, batches, sgd, 0.5, lambda update: 0.05))
    save(f"packed_{name}.safetensors", parameters, batches, made)


torch.manual_seed(19)
torch.set_num_threads(1)
for name in MODELS:
    make(name)
for name in LORA:
    make_lora(name)
for name in PACKED:
    make_packed(name)
