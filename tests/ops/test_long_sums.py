"""Sums of many numbers that hardly differ: what is rounded away from each would be lost many times
over, were they added one by one to one sum."""

from __future__ import annotations

import pytest
import torch

import torch_xla

SHAPES = [
    ((100003, 2), 0),  # a prime number
    ((1 << 18, 3), 0),
    ((1 << 19, 1), 0),
    ((99991, 1), 0),
    ((2, 1 << 19), 1),
    ((1 << 19,), 0),
    ((60, 37, 100, 2), (0, 1, 2)),
    ((16, 3, 128, 128), (0, 2, 3)),
    ((1, 65539, 1, 2), (0, 1)),
    ((300, 2, 300), (0, 2)),
]


def nearly_constant(shape: tuple[int, ...]) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(shape) * 0.01 + 1000.1


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sum_within_a_program(shape, dim, keepdim: bool):
    x = nearly_constant(shape)
    expected = (x.double() * 0.5).sum(dim, keepdim=keepdim)
    actual = (x.to("xla") * 0.5).sum(dim, keepdim=keepdim).cpu()
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual.double(), expected, rtol=3e-5, atol=0)


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_standard_deviation(shape, dim):
    torch.manual_seed(0)
    x = torch.randn(shape) + 1000
    expected = x.double().std(dim)
    torch.testing.assert_close(x.to("xla").std(dim).cpu().double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype):
    x = nearly_constant((65600, 3)).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    expected = x.to(wide).mean(0)
    tolerance = 0.01 if dtype == torch.bfloat16 else 4e-6
    actual = (x.to("xla") + 0).mean(0).cpu()
    torch.testing.assert_close(actual.to(wide), expected, rtol=tolerance, atol=0)


def test_gradient_of_a_bias_over_many_rows():
    rows = nearly_constant((50000, 4))
    bias = torch.zeros(4, device="xla", requires_grad=True)
    (rows.to("xla") + bias).square().sum().backward()
    torch_xla.sync()
    assert bias.grad is not None
    torch.testing.assert_close(
        bias.grad.cpu().double(), 2 * rows.double().sum(0), rtol=3e-5, atol=0
    )


PRODUCTS = {
    "mm": lambda c, x, y: x.t() @ y,
    "addmm": lambda c, x, y: torch.addmm(c, x.t(), y, beta=2, alpha=0.5),
    "addmm of nothing": lambda c, x, y: torch.addmm(c / 0, x.t(), y, beta=0),
    "addmm of no product": lambda c, x, y: torch.addmm(c, (x / 0).t(), y, alpha=0),
    "linear": lambda c, x, y: torch.nn.functional.linear(x.t(), y.t(), c[0]),
}


# Their sums are cut into parts for several threads.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [(16, 16), (64, 5), (1, 128)], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_product_of_long_sums(name: str, sizes: tuple[int, int], dtype: torch.dtype):
    rows, columns = sizes
    torch.manual_seed(0)
    depth = (1 << 23) // (rows * columns) + 1  # of which no half is like the other
    shapes = ((rows, columns), (depth, rows), (depth, columns))
    operands = [torch.randn(*shape, dtype=dtype) for shape in shapes]
    expected = PRODUCTS[name](*(x.double() for x in operands))
    actual = PRODUCTS[name](*(x.to("xla") for x in operands)).cpu()
    assert actual.dtype == dtype
    error = 2e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=error * depth**0.5)
