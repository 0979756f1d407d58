"""Results of operands of several dtypes, and of several strides, lie where PyTorch's kernels for
the CPU put them."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch.nn import functional

OPERATORS = {
    "add": torch.add,
    "atan2": torch.atan2,
    "eq": torch.eq,
    "logical_and": torch.logical_and,
    "masked_fill": lambda a, b: b.masked_fill(a.bool(), 1.0),
    "maximum": torch.maximum,
    "mul": torch.mul,
    "true_divide": torch.true_divide,
    "where": lambda a, b: torch.where(a.bool(), b, b * 2),
}
DTYPES = [torch.bool, torch.int64, torch.float32, torch.float64]


def operand(random_numbers, sizes):
    """What makes a tensor of these sizes that repeats elements, of any dtype and order."""
    dtype = random_numbers.choice(DTYPES)
    if random_numbers.random() < 0.3:
        strides = [random_numbers.choice([0, 0, 1, 2, 3]) for _ in sizes]
        return lambda d: torch.zeros(64, dtype=dtype, device=d).as_strided(sizes, strides)
    order = random_numbers.sample(range(len(sizes)), len(sizes))
    back = [order.index(i) for i in range(len(sizes))]
    wide = [sizes[i] for i in order]
    narrow = [size if random_numbers.random() < 0.6 else 1 for size in wide]
    return lambda d: torch.zeros(narrow, dtype=dtype, device=d).expand(wide).permute(back)


@pytest.mark.parametrize("name", OPERATORS)
def test_strides_are_those_of_what_was_converted(name, device):
    random_numbers = random.Random(name)
    for _ in range(60):
        sizes = [random_numbers.choice([1, 2, 3]) for _ in range(random_numbers.randrange(2, 6))]
        operands = [operand(random_numbers, sizes) for _ in range(2)]
        want, got = (
            OPERATORS[name](*(make(d) for make in operands)).stride() for d in ("cpu", device)
        )
        assert got == want, (sizes, [(m("cpu").dtype, m("cpu").stride()) for m in operands])


aten = torch.ops.aten
# Of a gradient and two operands of the same sizes.
OF_THREE = {
    "binary_cross_entropy": lambda g, x, y: aten.binary_cross_entropy(x, y, None, 0),
    "binary_cross_entropy, mean": lambda g, x, y: aten.binary_cross_entropy(x, y),
    "binary_cross_entropy_backward": lambda g, x, y: aten.binary_cross_entropy_backward(
        g, x, y, None, 0
    ),
    "floor_divide": lambda g, x, y: x // y[0, 0, 0, 0],
    "hardswish_backward": lambda g, x, y: aten.hardswish_backward(g, x),
    "hardtanh_backward": lambda g, x, y: aten.hardtanh_backward(g, x, 0.0, 1.0),
    "huber_loss_backward": lambda g, x, y: aten.huber_loss_backward(g, x, y, 0, 1.0),
    "mse_loss_backward": lambda g, x, y: aten.mse_loss_backward(g, x, y, 0),
    "smooth_l1_loss_backward": lambda g, x, y: aten.smooth_l1_loss_backward(g, x, y, 0, 1.0),
    "channel_shuffle": lambda g, x, y: functional.channel_shuffle(x, 2),
    "group_norm": lambda g, x, y: functional.group_norm(x, 2),
    "mvlgamma": lambda g, x, y: torch.mvlgamma(x + 2, 3),
}
LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.transpose(0, 3).contiguous().transpose(0, 3),
    "channels": lambda x: x.contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", OF_THREE)
def test_strides_are_those_of_the_cpus_kernel(name, device):
    for layouts in itertools.product(LAYOUTS.values(), repeat=3):
        want, got = (
            OF_THREE[name](*(lay(torch.full((2, 4, 3, 5), 0.5).to(d)) for lay in layouts))
            for d in ("cpu", device)
        )
        assert (got.shape, got.stride()) == (want.shape, want.stride()), layouts


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm", "layer_norm"])
def test_gradients_of_norms_are_laid_out_as_on_the_cpu(norm, device):
    def gradient(lay, d):
        x = torch.rand(2, 4, 6).to(d).requires_grad_()
        if norm == "batch_norm":
            y = functional.batch_norm(x, None, None, training=True)
        elif norm == "group_norm":
            y = functional.group_norm(x, 2)
        else:
            y = functional.layer_norm(x, [6])
        grad = torch.ones(6, 4, 2).to(d).permute(2, 1, 0) if lay else torch.ones(2, 4, 6).to(d)
        return torch.autograd.grad(y, x, grad)[0].stride()

    for lay in (False, True):
        assert gradient(lay, device) == gradient(lay, "cpu")
