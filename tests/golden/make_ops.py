# SPDX-License-Identifier: MIT
"""Makes ops.safetensors: what PyTorch computes for every op of src/net/kernel.h, in f64.

Run by hand with a Python that has torch and safetensors: python tests/golden/make_ops.py
The tests read the file and need no Python.

A case is `op/number`. Its tensors: `shape` (the integers in SHAPE's order), `reals` (eps, p, loss
weight), `in0` … and `out0` … in the order of kernel.h. Inputs are numbers that f32 has too;
residuals (what a gradient takes from the forward pass) are f64. Losses are one f64.
"""
import pathlib
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

SHAPE = "rows tokens in out width heads table ignore_index weight_in_out has_bias gelu_tanh".split()
torch.manual_seed(20240607)
tensors, counts = {}, {}


def random(*shape):
    return torch.randn(*shape, dtype=torch.float32).double().requires_grad_()


def case(op, shape, ins, outs, eps=0.0, p=0.0, weight=1.0):
    name = f"{op}/{counts.setdefault(op, 0)}"
    counts[op] += 1
    shape = {"ignore_index": -100, **shape}
    assert set(shape) <= set(SHAPE)
    tensors[f"{name}/shape"] = torch.tensor([int(shape.get(k, 0)) for k in SHAPE])
    tensors[f"{name}/reals"] = torch.tensor([eps, p, weight], dtype=torch.float64)
    for kind, values in (("in", ins), ("out", outs)):
        for i, value in enumerate(values):
            value = value.detach().clone().contiguous()
            if kind == "in" and value.dtype == torch.float64:
                narrow = value.float()
                value = narrow if torch.equal(narrow.double(), value) else value
            tensors[f"{name}/{kind}{i}"] = value


def gradients(y, dy, *parameters):
    return torch.autograd.grad(y, parameters, dy)


def linear(rows, tokens, fan_in, fan_out, in_out, has_bias):
    m = rows * tokens
    x, bias, dy = random(m, fan_in), random(fan_out), random(m, fan_out)
    weight = random(fan_in, fan_out) if in_out else random(fan_out, fan_in)
    y = F.linear(x, weight.t() if in_out else weight, bias if has_bias else None)
    shape = {"rows": rows, "tokens": tokens, "in": fan_in, "out": fan_out,
             "weight_in_out": in_out, "has_bias": has_bias}
    dx, dweight = gradients(F.linear(x, weight.t() if in_out else weight), dy, x, weight)
    case("linear", shape, [x, weight] + [bias] * has_bias, [y])
    case("linear_grad_input", shape, [dy, weight], [dx])
    case("linear_grad_weight", shape, [x, dy], [dweight])
    case("bias_grad", shape, [dy], [gradients(F.linear(x, weight.t() if in_out else weight, bias),
                                              dy, bias)[0]])


def embedding(rows, tokens, count, width):
    index = torch.randint(count, (rows * tokens,))
    table, dy = random(count, width), random(rows * tokens, width)
    y = F.embedding(index, table)
    shape = {"rows": rows, "tokens": tokens, "in": count, "out": width, "table": count,
             "width": width}
    case("embedding", shape, [index, table], [y])
    case("embedding_grad", shape, [index, dy], gradients(y, dy, table))


def position(rows, tokens, table_rows, width):
    x, table = random(rows, tokens, width), random(table_rows, width)
    dy = random(rows, tokens, width)
    y = x + F.embedding(torch.arange(tokens), table)
    shape = {"rows": rows, "tokens": tokens, "table": table_rows, "width": width}
    case("position_add", shape, [x, table], [y])
    case("position_grad", shape, [dy], gradients(y, dy, table))


def layer_norm(rows, tokens, width, eps):
    m = rows * tokens
    x, weight, bias, dy = random(m, width), random(width), random(width), random(m, width)
    y, mean, rstd = torch.native_layer_norm(x, (width,), weight, bias, eps)
    dx, dweight, dbias = gradients(y, dy, x, weight, bias)
    shape = {"rows": rows, "tokens": tokens, "width": width}
    case("layer_norm", shape, [x, weight, bias], [y, mean.flatten(), rstd.flatten()], eps=eps)
    residuals = [dy, x, mean.flatten(), rstd.flatten()]
    case("layer_norm_grad_input", shape, residuals + [weight], [dx], eps=eps)
    case("layer_norm_grad_weight", shape, residuals, [dweight, dbias], eps=eps)


def attention(rows, tokens, heads, size):
    qkv, dy = random(rows, tokens, 3 * heads * size), random(rows, tokens, heads * size)
    q, k, v = (part.view(rows, tokens, heads, size).transpose(1, 2)
               for part in qkv.split(heads * size, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = y.transpose(1, 2).reshape(rows, tokens, heads * size)
    scores = (q @ k.transpose(2, 3)) / size**0.5
    unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    lse = scores.masked_fill(unseen, float("-inf")).logsumexp(3)
    shape = {"rows": rows, "tokens": tokens, "width": heads * size, "heads": heads}
    case("attention", shape, [qkv], [y, lse])
    case("attention_grad", shape, [dy, qkv, y, lse], gradients(y, dy, qkv))


def pointwise(op, function, rows, width, scale=1.0, **shape):
    x, dy = random(rows, width), random(rows, width)
    x = (x.detach() * scale).requires_grad_()
    y = function(x)
    shape = {"rows": rows, "tokens": 1, "width": width, **shape}
    case(op, shape, [x], [y])
    case(f"{op}_grad", shape, [dy, x], gradients(y, dy, x))


def cross_entropy(rows, tokens, width, ignored):
    m = rows * tokens
    logits, target = random(m, width), torch.randint(width, (m,))
    target[torch.randperm(m)[:ignored]] = -100
    loss = F.cross_entropy(logits, target, ignore_index=-100)
    shape = {"rows": rows, "tokens": tokens, "width": width}
    weight = float(m - ignored)
    lse = logits.logsumexp(1)
    case("cross_entropy", shape, [logits, target], [loss, lse], weight=weight)
    case("cross_entropy_grad", shape, [logits, target, lse], gradients(loss, None, logits),
         weight=weight)


def mse(rows, width):
    y, target = random(rows, width), random(rows, width)
    loss = F.mse_loss(y, target)
    shape = {"rows": rows, "tokens": 1, "width": width}
    case("mse", shape, [y, target], [loss], weight=float(rows * width))
    case("mse_grad", shape, [y, target], gradients(loss, None, y), weight=float(rows * width))


def optimizer(name, number, make, reals, steps=6, count=37):
    parameter = random(count).detach().requires_grad_()
    start, taken, after = parameter.detach().clone(), [], []
    algorithm = make([parameter])
    for _ in range(steps):
        parameter.grad = random(count).detach()
        taken.append(parameter.grad.clone())
        algorithm.step()
        after.append(parameter.detach().clone())
    tensors[f"{name}/{number}/reals"] = torch.tensor(reals, dtype=torch.float64)
    tensors[f"{name}/{number}/start"] = start.float()
    tensors[f"{name}/{number}/gradients"] = torch.stack(taken).float()
    tensors[f"{name}/{number}/after"] = torch.stack(after)


for in_out in (False, True):
    linear(2, 3, 5, 7, in_out, True)
    linear(3, 11, 33, 18, in_out, False)
    linear(1, 1, 1, 1, in_out, True)
embedding(3, 5, 6, 9)
embedding(2, 17, 40, 16)
position(3, 5, 5, 7)
position(2, 4, 9, 16)
layer_norm(2, 3, 5, 1e-5)
layer_norm(3, 4, 64, 1e-6)
attention(2, 7, 2, 5)
attention(1, 33, 2, 16)
attention(2, 40, 1, 8)
for tanh in (False, True):
    gelu = lambda x: F.gelu(x, approximate="tanh" if tanh else "none")
    pointwise("gelu", gelu, 3, 17, gelu_tanh=tanh)
    pointwise("gelu", gelu, 2, 50, scale=3.0, gelu_tanh=tanh)
pointwise("relu", F.relu, 3, 17)
a, b = random(3, 19), random(3, 19)
case("add", {"rows": 3, "tokens": 1, "width": 19}, [a, b], [a + b])
case("copy", {"rows": 3, "tokens": 1, "width": 19}, [a], [a])
cross_entropy(3, 4, 11, 3)
cross_entropy(2, 5, 65, 0)
mse(4, 9)
AdamW, SGD = torch.optim.AdamW, torch.optim.SGD
for i, (lr, beta1, beta2, eps, decay) in enumerate(
        [(1e-3, 0.9, 0.999, 1e-8, 0.01), (0.05, 0.8, 0.95, 1e-6, 0.0),
         (0.1, 0.9, 0.99, 1e-8, 0.3)]):
    optimizer("adamw", i, lambda p: AdamW(p, lr=lr, betas=(beta1, beta2), eps=eps,
                                          weight_decay=decay), [lr, beta1, beta2, eps, decay])
for i, (lr, momentum, decay, nesterov) in enumerate(
        [(0.1, 0.0, 0.0, False), (0.1, 0.0, 0.2, False), (0.05, 0.9, 0.01, False),
         (0.05, 0.9, 0.1, True)]):
    optimizer("sgd", i, lambda p: SGD(p, lr=lr, momentum=momentum, weight_decay=decay,
                                      nesterov=nesterov), [lr, momentum, decay, float(nesterov)])

path = pathlib.Path(__file__).with_name("ops.safetensors")
save_file(tensors, path, metadata={"torch": torch.__version__})
print(path, path.stat().st_size, "bytes,", sum(counts.values()), "cases")
