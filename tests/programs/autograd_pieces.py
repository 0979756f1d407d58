"""What the lines of autograd_programs.py are made of: operators, custom Functions, hooks.

In the texts `{a}` is a tensor, `{b}` and `{c}` are tensors that broadcast to it, `{d}` is one of
its dimensions, `{i}` are indices of that, `{k}` is a small number. Where elements that are equal
would leave the gradient to rounding, a ramp makes them different.
"""

from __future__ import annotations

import copy

import torch
import torch.autograd.forward_ad as fwd
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

OPERATIONS = {
    "unary": [
        "{a}.tanh()",
        "{a}.sin()",
        "{a}.sigmoid()",
        "F.softplus({a})",
        "(-{a} * {a}).exp()",
        "{a} / (1 + {a} * {a})",
        "{a}.square()",
        "{a}.pow(3)",
        "F.gelu({a})",
        "F.silu({a})",
        "{a}.abs()",
        "F.relu({a})",
        "{a}.clamp(-0.6, 0.9)",
        "({a} * {a} + 0.5).sqrt()",
        "({a} * {a} + 1).log()",
        "({a} * {a} + 0.3).rsqrt()",
        "{a}.neg()",
        "{a}.clone()",
        "{a}.detach()",
        "{a}.float()",
        "{a}.double()",
        "F.elu({a})",
        "{a}.atan()",
        "{a}.erf()",
        "{a} * 2",
    ],
    "along": [
        "{a}.sum({d})",
        "{a}.mean({d}, keepdim=True)",
        "{a}.softmax({d})",
        "{a}.log_softmax({d})",
        "{a}.cumsum({d})",
        "({a} * 1).cumprod({d}) * 1",
        "({a} * 1).prod({d}) * 1",
        "{a}.logsumexp({d})",
        "{a}.logcumsumexp({d})",
        "{a}.flip({d})",
        "{a}.roll(1, {d})",
        "{a}.var({d}, correction=0)",
        "torch.cat([{a}, {a} * 2], {d})",
        "torch.stack([{a}, {a}.sin()], {d})",
        "({a} + ramp({a})).amax({d})",
        "({a} + ramp({a})).max({d}).values",
        "({a} + ramp({a})).min({d})[0]",
        "({a} + ramp({a})).sort({d})[0]",
        "({a} + ramp({a})).topk(1, {d})[0]",
        "({a} + ramp({a})).median({d})[0]",
        "({a} + ramp({a}) + 3).norm(dim={d})",
        "{a}.index_select({d}, {i})",
        "{a}.repeat_interleave(2, {d})",
        "{a}.diff(dim={d})",
        "{a}.unbind({d})[0]",
    ],
    "binary": [
        "{a} + {b}",
        "{a} * {b}",
        "{a} - 2 * {b}",
        "{a} / ({b} * {b} + 1)",
        "torch.maximum({a} + ramp({a}), {b})",
        "torch.where(mask({shape}, {k}), {a}, {b})",
        "torch.lerp({a}, {b}, 0.3)",
        "torch.addcmul({a}, {b}, {c}, value=0.5)",
        "torch.addcdiv({a}, {b}, {c} * {c} + 1)",
        "F.mse_loss({a}, {b}.expand_as({a}))",
        "F.smooth_l1_loss({a}, {b}.expand_as({a}), reduction='none')",
        "{a}.masked_fill(mask({shape}, {k}), 0.5)",
        "torch.atan2({a} + 3, {b})",
    ],
    "matrix": [
        "{a} @ {a}.mT",
        "{a}.mT @ {a}",
        "torch.einsum('...ij,...kj->...ik', {a}, {b}.expand_as({a}))",
        "F.linear({a}, {a}.detach()[..., :1, :].reshape(1, -1)[:, : {a}.shape[-1]])",
        "F.layer_norm({a}, {a}.shape[-1:], eps=0.1)",
        "F.pad({a}, (1, 2))",
        "F.pad({a}, (1, -1), value=0.5)",
        "{a}.tril({k} - 3)",
        "{a}.diagonal(0, -1, -2).sum(-1)",
        "torch.linalg.vector_norm({a} + 3)",
        "torch.outer({a}.flatten(), {a}.flatten()[:2])",
        "F.scaled_dot_product_attention({a} * 1, {a} * 1, {b}.expand_as({a})) * 1",
        "{a}.gather(-1, index([0] * {a}.numel()).reshape({shape}))",
        "{a}.take(index([0, 0, -1]))",
        "F.cross_entropy({a}, {b}.expand_as({a}).softmax(-1))",
    ],
}
COMPLEX = {
    "unary": [
        "{a} * (1 + 2j)",
        "{a}.conj()",
        "{a}.conj() * {a}",
        "{a}.sin()",
        "{a}.sum()",
        "{a}.abs()",
        "{a}.clone()",
        "{a}.real",
        "{a}.imag",
        "torch.view_as_real({a})",
        "{a} @ {a}.mH",
        "{a}.sum({d})",
        "{a}.flip({d})",
        "torch.cat([{a}, {a}.conj()], {d})",
        "{a}.resolve_conj()",
    ],
    "binary": ["{a} + {b}", "{a} * {b}", "torch.where(mask({shape}, {k}), {a}, {b})"],
}
IN_PLACE = [
    "{a}.mul_({b})",
    "{a}.add_({b}, alpha=0.5)",
    "{a}.sub_({b})",
    "{a} += {b}",
    "{a} *= 0.5",
    "{a}.tanh_()",
    "{a}.sigmoid_()",
    "F.relu({a}, inplace=True)",
    "{a}.clamp_(-0.5, 1)",
    "{a}.copy_({b})",
    "{a}.zero_()",
    "{a}.fill_(0.5)",
    "{a}.masked_fill_(mask({shape}, {k}), 0.25)",
    "{a}.addcmul_({b}, {c})",
    "{a}.lerp_({b}, 0.3)",
    "{a}.pow_(2)",
    "{a}.neg_()",
    "{a}.cumsum_({d})",
    "{a} = Doubled.apply({a})",
    "{a}.transpose_(0, {d})",
    "{a}.unsqueeze_({d})",
]
FUNCTIONS = [
    "Cube.apply({a})",
    "Cube.apply({a})",
    "Product.apply({a}, {b})",
    "StraightThrough.apply({a})",
    "Once.apply({a})",
    "Same.apply({a})",
    "Part.apply({a})",
    "Doubled.apply({a})",
    "Doubled.apply({a}.clone())",
    "Nothing.apply({a})",
    "two Pair.apply({a}, {b})",
    "two Ranked.apply({a})",
]
OPTIMIZERS = [
    "torch.optim.SGD([{leaves}], lr=0.1)",
    "torch.optim.SGD([{leaves}], lr=0.1, momentum=0.5, weight_decay=0.1)",
    "torch.optim.SGD([{leaves}], lr=0.1, momentum=0.5, nesterov=True, foreach=True)",
    "torch.optim.Adam([{leaves}], lr=0.1, eps=0.5)",
    "torch.optim.AdamW([{leaves}], lr=0.1, eps=0.5, foreach=False)",
    "torch.optim.RMSprop([{leaves}], lr=0.1, eps=0.5)",
    "torch.optim.Adagrad([{leaves}], lr=0.1, eps=0.5)",
]


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class Product(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return (grad * y).sum_to_size(x.shape), (grad * x).sum_to_size(y.shape)


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 4 + 0.1).round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad * ctx.x.cos()


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class Part(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x[..., :1]

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(ctx.shape)


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Nothing(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return None


class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.shapes = x.shape, y.shape
        return x + y, x - y

    @staticmethod
    def backward(ctx, first, second):
        plus = [g for g in (first, second) if g is not None]
        minus = [g for g in (first, None if second is None else -second) if g is not None]
        a, b = ctx.shapes
        return (sum(plus).sum_to_size(a), sum(minus).sum_to_size(b)) if plus else (None, None)


class Ranked(Function):
    @staticmethod
    def forward(ctx, x):
        count = (x > 0).sum(-1) if x.dim() else x.long()
        ctx.mark_non_differentiable(count)
        return x * 2, count

    @staticmethod
    def backward(ctx, grad, _):
        return grad * 2


def body(x):
    return (x * x).tanh() + x.sin()


def total(x):
    return (body(x) * x).sum()


def hessian(function, x):
    """Row by row, of the first elements."""
    x = x.detach().clone().requires_grad_()
    (grad,) = torch.autograd.grad(function(x), x, create_graph=True)
    rows = [torch.autograd.grad(g, x, retain_graph=True)[0] for g in grad.flatten()[:3]]
    return torch.stack(rows) if rows else grad.detach()


def forward_gradient(x, tangent):
    with fwd.dual_level():
        dual = fwd.make_dual(x.detach().clone(), tangent)
        out = fwd.unpack_dual(body(dual.clone()) * dual[..., :1]).tangent
        return out.clone()


def double_all(grads):
    return tuple(None if g is None else g * 2 for g in grads)


def negate_first(inputs, outputs):
    return tuple(None if g is None else -g for g in inputs)


def packed(x):
    return x.detach().clone()


def unpacked(x):
    return x


SCOPE = {
    "F": functional,
    "checkpoint": checkpoint,
    "copy": copy,
    **{f.__name__: f for f in (Cube, Product, StraightThrough, Once, Same, Part, Doubled)},
    **{f.__name__: f for f in (Nothing, Pair, Ranked, body, total, hessian, forward_gradient)},
    **{f.__name__: f for f in (double_all, negate_first, packed, unpacked)},
}
