"""Results of operands of several dtypes lie where PyTorch's kernels for the CPU put them."""

from __future__ import annotations

import random

import pytest
import torch

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
