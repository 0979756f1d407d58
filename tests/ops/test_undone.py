"""Functions that undo each other: what overflows or is no number in between stays so, in every
program, as on the CPU. XLA knows the rules `log(exp(x)) = x`, `sqrt(x * x) = abs(x)` and their
like, which hold for other numbers than those of a computer."""

from __future__ import annotations

import pytest
import torch

import torch_xla

_FUNCTIONS = {
    "log of exp": lambda x, y: x.exp().log(),
    "log2 of exp2": lambda x, y: torch.log2(torch.exp2(x)),
    "log of 2 ** x": lambda x, y: torch.log(2**x),
    "log of exp in another shape": lambda x, y: x.exp()[None].expand(2, -1).log(),
    "log of x ** 4": lambda x, y: (x**4).log(),
    "log of x ** 1.5": lambda x, y: (x**1.5).log(),
    "log10 of x ** y": lambda x, y: torch.log10(x**y),
    "log of rsqrt": lambda x, y: x.rsqrt().log(),
    "sqrt of x * x": lambda x, y: (x * x).sqrt(),
    "sqrt of square": lambda x, y: x.square() ** 0.5,
    "sqrt of the sum of one square": lambda x, y: x[:, None].square().sum(1).sqrt(),
    "rsqrt of x ** -2": lambda x, y: (x**-2).rsqrt(),
    "exp times exp": lambda x, y: x.exp() * y.exp(),
    "exp over exp": lambda x, y: x.exp() / y.exp(),
    "exp over the sum of one": lambda x, y: x.exp() / x[:, None].exp().sum(1),
    "exp ** y": lambda x, y: x.exp() ** y,
    "x over a power": lambda x, y: x / x**y,
    "sqrt times sqrt": lambda x, y: x.sqrt() * x.sqrt(),
    "abs times abs": lambda x, y: (x.abs() * x.abs()).sqrt(),
    "a quotient's quotient": lambda x, y: x / (x / y) / y,
    "a product taken apart": lambda x, y: x * y / x,
}


def _values(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    large = torch.finfo(dtype).max / 64
    values = [large, -large, large**0.5 * 2, 1000.0, -1000.0, 3.0, -2.0, 1.0, 0.0]
    values += [-0.0, float("inf"), -float("inf"), float("nan")]
    x = torch.tensor(values, dtype=dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_what_overflows_in_between_stays_so(device, dtype):
    x, y = _values(dtype)
    found = {name: function(x.to(device), y.to(device)) for name, function in _FUNCTIONS.items()}
    torch_xla.sync()
    for name, function in _FUNCTIONS.items():
        want, got = function(x, y), found[name].cpu()
        small = torch.finfo(dtype).tiny
        # Numbers below the smallest normal one are 0, says docs/errors.md.
        want[want.abs() < small] = 0
        got[got.abs() < small] = 0
        torch.testing.assert_close(
            got,
            want,
            equal_nan=True,
            rtol=5e-2 if dtype.itemsize == 2 else 1e-4,
            atol=0,
            msg=lambda text, name=name: f"{name}: {text}",
        )
