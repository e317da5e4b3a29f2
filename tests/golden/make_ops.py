# SPDX-License-Identifier: MIT
"""Makes ops.safetensors: what PyTorch computes for every op of src/net/kernel.h, in f64.

Run by hand with a Python that has torch and safetensors: python tests/golden/make_ops.py
The tests read the file and need no Python.

A case is `op/number`. Its tensors: `shape` (the integers in SHAPE's order, the planes, those of LAST), `reals` (eps, p, loss
weight, slope), `in0` … and `out0` … in the order of kernel.h; of ops with a cache `places` (each
row's sequence, then each row's place) and, where it is written, `cache` before the call and after
it as the last output. Inputs are numbers that f32 has too; residuals (what a gradient takes from
the forward pass) are f64. Losses are one f64. Images lie channels last.
"""
import pathlib
from fractions import Fraction
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

PLANES = "in_plane out_plane kernel stride padding".split()
SHAPE = ("rows tokens in out width heads table ignore_index weight_in_out has_bias gelu_tanh "
         "groups count_padding adaptive").split()
LAST = ("sees_all", "sources", "kv_heads", "reach", "adds", "activates")
SEQUENCES = 3
torch.manual_seed(20240607)
tensors, counts = {}, {}


def random(*shape):
    return torch.randn(*shape, dtype=torch.float32).double().requires_grad_()


def case(op, shape, ins, outs, eps=0.0, p=0.0, weight=1.0, slope=0.0, **more):
    name = f"{op}/{counts.setdefault(op, 0)}"
    counts[op] += 1
    shape = {"ignore_index": -100, **shape}
    assert set(shape) <= {*SHAPE, *PLANES, *LAST}
    tensors[f"{name}/shape"] = torch.tensor(
        [int(shape.get(k, 0)) for k in SHAPE] + [n for k in PLANES for n in shape.get(k, (0, 0))] +
        [int(shape.get(k, 0)) for k in LAST])
    tensors[f"{name}/reals"] = torch.tensor([eps, p, weight, slope], dtype=torch.float64)
    for key, value in more.items():
        tensors[f"{name}/{key}"] = value.detach().clone().contiguous()
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


def residual_mix(rows, tokens, width, sources):
    m, eps = rows * tokens, 1e-6
    weight, query, dy = random(width), random(width), random(m, width)
    x = [random(m, width) for _ in range(sources)]
    stack = torch.stack(x, 1)
    rstd = torch.rsqrt((stack * stack).mean(2) + eps)
    logits = F.rms_norm(stack, (width,), weight, eps) @ query
    share = logits.softmax(1)
    y = (share[:, :, None] * stack).sum(1)
    shape = {"rows": rows, "tokens": tokens, "width": width, "sources": sources}
    case("residual_mix", shape, [weight, query] + x, [y, share, rstd], eps=eps)
    dlogits, dweight, dquery, *dx = gradients(y, dy, logits, weight, query, *x)
    pull = ((dlogits * rstd)[:, :, None] * stack).sum(1)
    sums = [random(m, width) if s % 2 == 0 else torch.zeros(0) for s in range(sources)]
    dx = [d + e if e.numel() else d for d, e in zip(dx, sums)]
    case("residual_mix_grad", shape, [dy, share, rstd, weight, query] + x + sums, [pull] + dx, eps=eps)
    case("residual_mix_grad_weight", shape, [pull, weight, query], [dweight, dquery], eps=eps)


def rms_norm(rows, tokens, width, affine, eps):
    m = rows * tokens
    x, weight, dy = random(m, width), random(width), random(m, width)
    y = F.rms_norm(x, (width,), weight if affine else None, eps)
    rstd = torch.rsqrt((x * x).mean(1) + (torch.finfo(x.dtype).eps if eps is None else eps))
    shape = {"rows": rows, "tokens": tokens, "width": width, "has_bias": affine}
    extra, eps = [weight] * affine, torch.finfo(x.dtype).eps if eps is None else eps
    case("rms_norm", shape, [x] + extra, [y, rstd], eps=eps)
    dx = gradients(y, dy, x)[0] if not affine else None
    if affine:
        dx, dweight = gradients(y, dy, x, weight)
        case("rms_norm_grad_weight", shape, [dy, x, rstd], [dweight], eps=eps)
    case("rms_norm_grad_input", shape, [dy, x, rstd] + extra, [dx], eps=eps)


def attention(rows, tokens, heads, size, sees_all=False):
    qkv, dy = random(rows, tokens, 3 * heads * size), random(rows, tokens, heads * size)
    q, k, v = (part.view(rows, tokens, heads, size).transpose(1, 2)
               for part in qkv.split(heads * size, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=not sees_all)
    y = y.transpose(1, 2).reshape(rows, tokens, heads * size)
    scores = (q @ k.transpose(2, 3)) / size**0.5
    unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(tokens if sees_all else 1)
    lse = scores.masked_fill(unseen, float("-inf")).logsumexp(3)
    shape = {"rows": rows, "tokens": tokens, "width": heads * size, "heads": heads,
             "sees_all": sees_all}
    case("attention", shape, [qkv], [y, lse])
    case("attention_grad", shape, [dy, qkv, y, lse], gradients(y, dy, qkv))


def pointwise(op, function, rows, width, scale=1.0, by_y=False, slope=0.0, **shape):
    x, dy = random(rows, width), random(rows, width)
    x = (x.detach() * scale).requires_grad_()
    y = function(x)
    shape = {"rows": rows, "tokens": 1, "width": width, **shape}
    case(op, shape, [x], [y], slope=slope)
    case(f"{op}_grad", shape, [dy, y if by_y else x], gradients(y, dy, x), slope=slope)


def softmax(rows, tokens, width, scale):
    x, dy = random(rows * tokens, width), random(rows * tokens, width)
    y = F.softmax(x * scale, 1)
    shape = {"rows": rows, "tokens": tokens, "width": width}
    case("softmax", shape, [x * scale], [y])
    case("softmax_grad", shape, [dy, y], [gradients(y, dy, x)[0] / scale])


def channels_last(x):
    return x.permute(0, 2, 3, 1)


def plane_of(x):
    return tuple(x.shape[2:])


def conv2d(rows, fan_in, fan_out, plane, kernel, stride, padding, groups=1, has_bias=True):
    x, weight = random(rows, fan_in, *plane), random(fan_out, fan_in // groups, *kernel)
    bias = random(fan_out) if has_bias else None
    y = F.conv2d(x, weight, bias, stride, padding, groups=groups)
    dy = random(*y.shape)
    shape = {"rows": rows, "in": fan_in, "out": fan_out, "in_plane": plane, "groups": groups,
             "out_plane": plane_of(y), "kernel": kernel, "stride": stride, "padding": padding,
             "has_bias": has_bias, "tokens": y[0, 0].numel()}
    dx, dweight = gradients(y, dy, x, weight)
    rows_of = [channels_last(t) for t in (x, y, dx, dy)]
    case("conv2d", shape, [rows_of[0], weight] + [bias] * has_bias, [rows_of[1]])
    case("conv2d_grad_input", shape, [rows_of[3], weight], [rows_of[2]])
    case("conv2d_grad_weight", shape, [rows_of[0], rows_of[3]], [dweight])
    if has_bias:
        case("bias_grad", shape, [rows_of[3]], gradients(
            F.conv2d(x, weight, bias, stride, padding, groups=groups), dy, bias))


def conv_transpose2d(rows, fan_in, fan_out, plane, kernel, stride, padding, extra, groups=1):
    """As the convolution that it is the gradient of: its `in` is our output."""
    x, weight = random(rows, fan_in, *plane), random(fan_in, fan_out // groups, *kernel)
    y = F.conv_transpose2d(x, weight, None, stride, padding, extra, groups)
    dy = random(*y.shape)
    shape = {"rows": rows, "in": fan_out, "out": fan_in, "in_plane": plane_of(y), "groups": groups,
             "out_plane": plane, "kernel": kernel, "stride": stride, "padding": padding,
             "tokens": plane[0] * plane[1]}
    dx, dweight = gradients(y, dy, x, weight)
    case("conv2d_grad_input", shape, [channels_last(x), weight], [channels_last(y)])
    case("conv2d", shape, [channels_last(dy), weight], [channels_last(dx)])
    case("conv2d_grad_weight", shape, [channels_last(dy), channels_last(x)], [dweight])


def bias_add(rows, tokens, width):
    x, bias = random(rows, tokens, width), random(width)
    shape = {"rows": rows, "tokens": tokens, "width": tokens * width, "out": width}
    case("bias_add", shape, [x, bias], [x + bias])


def moments(x, eps):
    mean, variance = x.mean((2, 3)), x.var((2, 3), unbiased=False)
    return [mean, 1 / torch.sqrt(variance + eps)]


def instance_norm(rows, channels, plane, affine, eps):
    x, dy = random(rows, channels, *plane), random(rows, channels, *plane)
    weight, bias = random(channels), random(channels)
    y = F.instance_norm(x, None, None, *([weight, bias] if affine else [None, None]), eps=eps)
    shape = {"rows": rows, "tokens": x[0, 0].numel(), "width": channels, "has_bias": affine}
    extra = [weight, bias] if affine else []
    case("instance_norm", shape, [channels_last(x)] + extra, [channels_last(y)] + moments(x, eps),
         eps=eps)
    ins = [channels_last(dy), channels_last(x)] + moments(x, eps)
    dx = gradients(y, dy, x)[0]
    case("instance_norm_grad_input", shape, ins + extra[:1], [channels_last(dx)], eps=eps)
    if affine:
        y = F.instance_norm(x, None, None, weight, bias, eps=eps)
        case("instance_norm_grad_weight", shape, ins, gradients(y, dy, weight, bias), eps=eps)


def scale(rows, width, factor):
    x = random(rows, width)
    case("scale", {"rows": rows, "width": width}, [x], [factor * x], slope=factor)


def instance_norm_act(rows, channels, plane, slope, eps):
    x, dy = random(rows, channels, *plane), random(rows, channels, *plane)
    y = F.leaky_relu(F.instance_norm(x, eps=eps), slope)
    shape = {"rows": rows, "tokens": x[0, 0].numel(), "width": channels}
    case("instance_norm_act", shape, [channels_last(x)], [channels_last(y)] + moments(x, eps),
         eps=eps, slope=slope)
    ins = [channels_last(t) for t in (dy, y, x)] + moments(x, eps)
    case("instance_norm_act_grad", shape, ins, [channels_last(gradients(y, dy, x)[0])], eps=eps,
         slope=slope)


def digits(value):
    """Signed digits of base 4096, of units of 2^-144, from exact arithmetic."""
    units = int(Fraction(value) * 2 ** 144) if value >= 0 else -int(Fraction(-value) * 2 ** 144)
    sign, units = (1, units) if units >= 0 else (-1, -units)
    return [sign * (units >> 12 * k & 4095) for k in range(24)]


def batch_norm(rows, channels, plane, affine, eps):
    x, dy = random(rows, channels, *plane), random(rows, channels, *plane)
    weight, bias, running = random(channels), random(channels), random(channels)
    y = F.batch_norm(x, None, None, *([weight, bias] if affine else [None, None]), training=True,
                     eps=eps)
    shape = {"rows": rows, "tokens": x[0, 0].numel(), "width": channels, "has_bias": affine}
    count = rows * x[0, 0].numel()
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    extra = [weight, bias] if affine else []
    case("batch_norm", shape, [channels_last(x)] + extra, [channels_last(y), mean, variance],
         eps=eps)
    normal = F.batch_norm(x, None, None, training=True, eps=eps)
    sums = [dy.sum((0, 2, 3)), (dy * normal).sum((0, 2, 3))]
    ins = [channels_last(dy), channels_last(x), mean, variance]
    case("batch_norm_sums", shape, ins, sums, eps=eps)
    case("batch_norm_grad_input", shape, ins + sums + extra[:1],
         [channels_last(gradients(y, dy, x)[0])], eps=eps)
    if affine:
        y = F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)
        case("batch_norm_grad_weight", shape, sums, gradients(y, dy, weight, bias), eps=eps)
    distance = mean - running
    terms = torch.stack([count * distance, count * (variance + distance * distance)], 1)
    sums = [digits(float(t)) for t in [*terms.flatten(), float(count)]]
    case("batch_norm_statistics", shape, [mean, variance, running],
         [torch.tensor(sums, dtype=torch.float64).flatten()], eps=eps)


def batch_norm_act(rows, channels, plane, adds, activates, eps):
    x, dy, addend = (random(rows, channels, *plane) for _ in range(3))
    weight, bias = random(channels), random(channels)
    y = F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)
    y = y + addend if adds else y
    y = F.relu(y) if activates else y
    shape = {"rows": rows, "tokens": x[0, 0].numel(), "width": channels, "has_bias": True,
             "adds": adds, "activates": activates}
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    empty = torch.zeros(0, dtype=torch.float64)  # the running numbers
    ins = [channels_last(x), weight, bias] + [empty, empty, channels_last(addend)] * adds
    case("batch_norm_act", shape, ins, [channels_last(y), mean, variance], eps=eps)
    if not activates:
        return
    own = dy * (y > 0)
    normal = F.batch_norm(x, None, None, training=True, eps=eps)
    ins = [channels_last(t) for t in (dy, y, x)] + [mean, variance]
    case("batch_norm_act_sums", shape, ins,
         [channels_last(own), own.sum((0, 2, 3)), (own * normal).sum((0, 2, 3))], eps=eps)


def window(op, function, rows, channels, plane, by_x=False, change=None, **shape):
    """An op of one image and its gradient."""
    x = random(rows, channels, *plane)
    if change is not None:
        x = change(x.detach()).requires_grad_()
    y = function(x)
    dy = random(*y.shape)
    shape = {"rows": rows, "width": channels, "in_plane": plane, "out_plane": plane_of(y), **shape}
    case(op, shape, [channels_last(x)], [channels_last(y)])
    ins = [channels_last(dy)] + [channels_last(x)] * by_x
    case(f"{op}_grad", shape, ins, [channels_last(gradients(y, dy, x)[0])])


def max_pool2d(rows, channels, plane, kernel, stride, padding, change=None):
    window("max_pool2d", lambda x: F.max_pool2d(x, kernel, stride, padding), rows, channels, plane,
           by_x=True, change=change, kernel=kernel, stride=stride, padding=padding)


def avg_pool2d(rows, channels, plane, kernel, stride, padding, counted):
    window("avg_pool2d", lambda x: F.avg_pool2d(x, kernel, stride, padding,
                                                count_include_pad=counted),
           rows, channels, plane, kernel=kernel, stride=stride, padding=padding,
           count_padding=counted)


def adaptive_avg_pool2d(rows, channels, plane, out):
    window("avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, out), rows, channels, plane,
           adaptive=True)


def upsample(rows, channels, plane, factor):
    window("upsample", lambda x: F.interpolate(x, scale_factor=factor, mode="nearest"), rows,
           channels, plane, stride=factor)


def concat(rows, channels_a, plane_a, channels_b, plane_b):
    a, b = random(rows, channels_a, *plane_a), random(rows, channels_b, *plane_b)
    padded = F.pad(a, [0, plane_b[1] - plane_a[1], 0, plane_b[0] - plane_a[0]])
    y = torch.cat([padded, b], 1)
    dy = random(*y.shape)
    shape = {"rows": rows, "in": channels_a, "out": channels_b, "in_plane": plane_a,
             "out_plane": plane_b}
    da, db = gradients(y, dy, a, b)
    case("concat", shape, [channels_last(a), channels_last(b)], [channels_last(y)])
    case("concat_grad_a", shape, [channels_last(dy)], [channels_last(da)])
    case("concat_grad_b", shape, [channels_last(dy)], [channels_last(db)])


def attention_cached(tokens, heads, size, table, steps):
    """Sequence s has tokens[s] tokens, the last steps[s] of which are new: their outputs are those
    of attention over the whole sequence."""
    width = heads * size
    cache = random(SEQUENCES, table, 2 * width).detach()
    after, sequence, place, news, outs = cache.clone(), [], [], [], []
    for s, (count, new) in enumerate(zip(tokens, steps)):
        qkv = random(count, 3 * width).detach()
        q, k, v = (part.view(count, heads, size).transpose(0, 1)
                   for part in qkv.split(width, dim=1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        old = count - new
        cache[s, :old], after[s, :count] = qkv[:old, width:], qkv[:, width:]
        sequence += [s] * new
        place += range(old, count)
        news.append(qkv[old:])
        outs.append(y.transpose(0, 1).reshape(count, width)[old:])
    order = torch.randperm(len(place))
    rows = {"rows": len(place), "tokens": 1, "width": width, "heads": heads, "table": table}
    places = torch.tensor([sequence, place])[:, order]
    after = torch.where(torch.isnan(after), cache, after)
    case("attention_cached", rows, [torch.cat(news)[order]], [torch.cat(outs)[order], after],
         places=places, cache=cache)


def position_cached(place, table_rows, width):
    x, table = random(len(place), width), random(table_rows, width)
    y = x + F.embedding(torch.tensor(place), table)
    shape = {"rows": len(place), "tokens": 1, "table": table_rows, "width": width}
    case("position_cached", shape, [x, table], [y],
         places=torch.tensor([[0] * len(place), place]))


def grouped(q, k, v, heads, kv_heads, reach):
    """Attention of (rows, tokens, heads * size) to kv_heads; y and lse."""
    rows, tokens, width = q.shape
    size = width // heads
    q = q.view(rows, tokens, heads, size).transpose(1, 2)
    k, v = (x.view(rows, tokens, kv_heads, size).transpose(1, 2)
            .repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
    seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if reach > 0:
        seen &= torch.ones(tokens, tokens, dtype=torch.bool).triu(1 - reach)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    scores = (q @ k.transpose(2, 3)) / size**0.5
    return (y.transpose(1, 2).reshape(rows, tokens, width),
            scores.masked_fill(~seen, float("-inf")).logsumexp(3))


def grouped_attention(rows, tokens, heads, kv_heads, size, reach):
    q, dy = random(rows, tokens, heads * size), random(rows, tokens, heads * size)
    k, v = random(rows, tokens, kv_heads * size), random(rows, tokens, kv_heads * size)
    y, lse = grouped(q, k, v, heads, kv_heads, reach)
    shape = {"rows": rows, "tokens": tokens, "width": heads * size, "heads": heads,
             "kv_heads": kv_heads, "reach": reach}
    case("grouped_attention", shape, [q, k, v], [y, lse])
    case("grouped_attention_grad", shape, [dy, q, k, v, y, lse],
         torch.autograd.grad(y, (q, k, v), dy))


def grouped_attention_cached(tokens, new, heads, kv_heads, size, table, reach):
    """The last `new` of a sequence's tokens: their outputs are those of the whole sequence's."""
    width, kv_width = heads * size, kv_heads * size
    cache = random(SEQUENCES, table, 2 * kv_width).detach()
    q = random(1, tokens, width).detach()
    k, v = (random(1, tokens, kv_width).detach() for _ in range(2))
    y, _ = grouped(q, k, v, heads, kv_heads, reach)
    old, joined = tokens - new, torch.cat((k[0], v[0]), dim=1)
    cache[1, :old] = joined[:old]
    after = cache.clone()
    after[1, :tokens] = joined
    shape = {"rows": new, "tokens": 1, "width": width, "heads": heads, "table": table,
             "kv_heads": kv_heads, "reach": reach}
    case("grouped_attention_cached", shape, [q[0, old:], k[0, old:], v[0, old:]],
         [y[0, old:], after], places=torch.tensor([[1] * new, [*range(old, tokens)]]), cache=cache)


def rope(rows, tokens, heads, size, base, first=None):
    """With `first` the rows are single tokens at places from there on. Angles are products of
    floats, as models of Hugging Face's transformers make them."""
    places = torch.arange(tokens) if first is None else first + torch.arange(rows)
    frequencies = (1 / base ** (torch.arange(0, size, 2, dtype=torch.float64) / size)).float()
    angles = (places.float()[:, None] * frequencies[None]).double()
    cos, sin = (torch.cat((f(angles), f(angles)), dim=1)[:, None] for f in (torch.cos, torch.sin))
    x, dy = random(rows, tokens, heads * size), random(rows, tokens, heads * size)
    split = x.view(rows, tokens, heads, size) if first is None else x.view(1, rows, heads, size)
    half = torch.cat((-split[..., size // 2:], split[..., :size // 2]), dim=3)
    y = (split * cos + half * sin).reshape(x.shape)
    shape = {"rows": rows, "tokens": tokens, "width": heads * size, "heads": heads}
    if first is not None:
        case("rope_cached", {**shape, "table": first + rows}, [x], [y], frequencies=frequencies,
             places=torch.stack((torch.zeros(rows, dtype=torch.int64), places)))
        return
    case("rope", shape, [x], [y], frequencies=frequencies)
    case("rope_grad", shape, [dy], gradients(y, dy, x), frequencies=frequencies)


def swiglu(rows, width, scale=1.0):
    gate, up, dy = random(rows, width), random(rows, width), random(rows, width)
    gate = (gate.detach() * scale).requires_grad_()
    y = F.silu(gate) * up
    shape = {"rows": rows, "tokens": 1, "width": width}
    case("swiglu", shape, [gate, up], [y])
    case("swiglu_grad", shape, [dy, gate, up], torch.autograd.grad(y, (gate, up), dy))


def cross_entropy(rows, tokens, width, ignored, offset=0.0):
    m = rows * tokens
    logits, target = random(m, width), torch.randint(width, (m,))
    target[torch.randperm(m)[:ignored]] = -100
    logits = (logits.detach() + offset).float().double().requires_grad_()
    loss = F.cross_entropy(logits, target, ignore_index=-100)
    shape = {"rows": rows, "tokens": tokens, "width": width}
    weight = float(m - ignored)
    largest = logits.amax(1)
    total = (logits - largest[:, None]).exp().sum(1)
    case("cross_entropy", shape, [logits, target], [loss, largest, total], weight=weight)
    case("cross_entropy_grad", shape, [logits, target, largest, total],
         gradients(loss, None, logits), weight=weight)


def mse(rows, width):
    y, target = random(rows, width), random(rows, width)
    loss = F.mse_loss(y, target)
    shape = {"rows": rows, "tokens": 1, "width": width}
    case("mse", shape, [y, target], [loss], weight=float(rows * width))
    case("mse_grad", shape, [y, target], gradients(loss, None, y), weight=float(rows * width))


def bce_with_logits(rows, width, scale):
    x, target = random(rows, width), torch.rand(rows, width).double()
    target[0] = (target[0] > 0.5).double()
    x = (x.detach() * scale).requires_grad_()
    loss = F.binary_cross_entropy_with_logits(x, target)
    shape = {"rows": rows, "tokens": 1, "width": width}
    case("bce_with_logits", shape, [x, target], [loss], weight=float(rows * width))
    case("bce_with_logits_grad", shape, [x, target], gradients(loss, None, x),
         weight=float(rows * width))


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

softmax(2, 3, 7, 1.0)
softmax(1, 4, 65, 32.0)
for slope in (0.01, 0.3):
    pointwise("leaky_relu", lambda x: F.leaky_relu(x, slope), 3, 17, by_y=True, slope=slope)
pointwise("silu", F.silu, 3, 17)
pointwise("silu", F.silu, 2, 50, scale=8.0)
for op, function in (("sigmoid", torch.sigmoid), ("tanh", torch.tanh)):
    pointwise(op, function, 3, 17, by_y=True)
    pointwise(op, function, 2, 50, scale=8.0, by_y=True)
conv2d(2, 3, 5, (7, 6), (3, 3), (1, 1), (1, 1))
conv2d(1, 4, 18, (5, 9), (1, 1), (1, 1), (0, 0), has_bias=False)
conv2d(2, 5, 3, (8, 7), (1, 1), (2, 2), (0, 0))
conv2d(1, 3, 6, (6, 9), (1, 7), (1, 2), (0, 3))
conv2d(1, 6, 3, (9, 6), (7, 1), (2, 1), (3, 0))
conv2d(2, 3, 4, (9, 8), (2, 2), (2, 2), (0, 0), has_bias=False)
conv2d(1, 3, 8, (13, 11), (7, 7), (2, 2), (3, 3), has_bias=False)
conv2d(1, 2, 3, (11, 10), (3, 3), (3, 2), (2, 0))
conv2d(1, 17, 33, (5, 4), (3, 3), (1, 1), (1, 1))
conv2d(2, 6, 4, (6, 5), (3, 3), (1, 1), (1, 1), groups=2)
conv2d(1, 6, 6, (7, 5), (3, 3), (2, 2), (1, 1), groups=6, has_bias=False)
conv2d(1, 3, 9, (5, 5), (3, 3), (1, 1), (1, 1), groups=3)
instance_norm(2, 3, (5, 7), False, 1e-5)
instance_norm(2, 17, (3, 4), True, 1e-5)
instance_norm(1, 5, (9, 8), True, 1e-2)
instance_norm_act(2, 3, (5, 7), 0.01, 1e-5)
instance_norm_act(1, 18, (4, 6), 0.2, 1e-3)
max_pool2d(2, 3, (7, 9), (2, 2), (2, 2), (0, 0))
max_pool2d(1, 17, (8, 7), (3, 3), (2, 2), (1, 1))
max_pool2d(2, 2, (7, 6), (3, 2), (1, 3), (1, 0))
max_pool2d(1, 3, (9, 9), (3, 3), (1, 1), (1, 1), change=lambda x: x.round())
avg_pool2d(2, 3, (7, 9), (2, 2), (2, 2), (0, 0), True)
for counted in (False, True):
    avg_pool2d(1, 5, (8, 7), (3, 3), (2, 2), (1, 1), counted)
    avg_pool2d(1, 3, (7, 6), (3, 5), (1, 3), (1, 2), counted)
adaptive_avg_pool2d(2, 5, (7, 6), (1, 1))
adaptive_avg_pool2d(1, 3, (7, 10), (3, 4))
adaptive_avg_pool2d(1, 3, (5, 4), (8, 4))
upsample(2, 3, (3, 5), (2, 2))
upsample(1, 17, (2, 3), (3, 1))
concat(2, 3, (5, 4), 2, (5, 4))
concat(1, 17, (4, 6), 5, (5, 7))
concat(2, 2, (3, 5), 3, (5, 5))
for rows, tokens, fan_in, fan_out in ((2, 1, 3, 20), (1, 2, 17, 5)):
    x = random(rows, tokens, fan_in, fan_out)
    case("transpose", {"rows": rows, "tokens": tokens, "in": fan_in, "out": fan_out}, [x],
         [x.transpose(2, 3)])
attention_cached((5, 1, 9), 2, 5, 11, (1, 1, 1))
attention_cached((7, 0, 20), 2, 16, 20, (3, 0, 5))
position_cached([4, 0, 4, 2], 5, 7)
position_cached([1, 8], 9, 16)
bce_with_logits(4, 9, 1.0)
bce_with_logits(2, 40, 16.0)
cross_entropy(2, 3, 65, 1, offset=1e6)
a, b, dy = random(3, 19), random(3, 19), random(3, 19)
shape = {"rows": 3, "tokens": 1, "width": 19}
case("multiply", shape, [a, b], [a * b])
for x, other in ((a, b), (b, a)):
    case("multiply", shape, [dy, other], gradients(a * b, dy, x))
conv_transpose2d(2, 3, 5, (4, 3), (3, 3), (2, 2), (1, 1), (1, 1))
conv_transpose2d(1, 4, 6, (5, 4), (3, 2), (1, 1), (0, 1), (0, 0), groups=2)
conv_transpose2d(2, 3, 4, (3, 4), (2, 4), (2, 3), (0, 1), (0, 2))
bias_add(2, 3, 5)
bias_add(1, 4, 33)
attention(2, 7, 2, 5, True)
attention(1, 70, 1, 8, True)
rms_norm(2, 3, 7, True, 1e-5)
rms_norm(1, 4, 33, False, None)
rms_norm(2, 2, 70, True, 0.1)
batch_norm(2, 3, (5, 7), True, 1e-5)
batch_norm(3, 17, (3, 4), False, 1e-2)
batch_norm(4, 33, (1, 1), True, 0.25)
residual_mix(2, 3, 7, 3)
residual_mix(1, 4, 33, 1)
residual_mix(2, 2, 70, 4)
grouped_attention(2, 7, 4, 2, 5, 0)
grouped_attention(1, 70, 6, 2, 16, 0)
grouped_attention(1, 40, 3, 1, 8, 9)
grouped_attention(1, 100, 2, 2, 34, 40)
grouped_attention_cached(9, 1, 4, 2, 5, 11, 0)
grouped_attention_cached(20, 5, 3, 1, 16, 20, 6)
rope(2, 7, 3, 6, 100.0)
rope(1, 40, 2, 34, 10000.0)
rope(1, 3, 1, 64, 500000.0)
rope(5, 1, 2, 8, 100.0, first=90)
rope(3, 1, 1, 64, 1000000.0, first=1300)
swiglu(3, 17)
swiglu(2, 50, scale=3.0)
scale(3, 17, 0.3)
scale(1, 50, 4.0)
batch_norm_act(2, 3, (5, 7), False, True, 1e-5)
batch_norm_act(3, 17, (3, 4), True, True, 1e-2)
batch_norm_act(4, 33, (1, 2), True, False, 0.25)

path = pathlib.Path(__file__).with_name("ops.safetensors")
save_file(tensors, path, metadata={"torch": torch.__version__})
print(path, path.stat().st_size, "bytes,", sum(counts.values()), "cases")
