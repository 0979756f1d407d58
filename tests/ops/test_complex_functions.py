"""Functions of complex numbers of all sizes, as data and as constants of the program, which
compilers compute otherwise: each part is as near as the CPU's, beside the number's own size or the
part's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

NAMES = (
    "acos", "acosh", "angle", "asin", "asinh", "cos", "cosh", "exp", "expm1", "log", "log10",
    "log1p", "log2", "reciprocal", "rsqrt", "sgn", "sigmoid", "sin", "sinc", "sinh", "sqrt",
    "square", "tan", "tanh",
)  # fmt: skip
# Whose small parts are not lost beside large ones.
BY_PARTS = ("cos", "cosh", "sin", "sinh")
SIZES = (0.0, 1e-30, 1e-10, 1e-4, 1e-2, 0.5, 1.0, 3.0, 20.0)
SPECIAL = [0j, complex(-0.0, 0.0), complex(0.0, -0.0), 1 + 0j, -1 + 0j, 1j, -1j, 2 - 3j, 1e-20j]


def numbers() -> list[complex]:
    quarter = [complex(a, b) for a in SIZES for b in SIZES]
    return [complex(a * z.real, b * z.imag) for z in quarter for a in (1, -1) for b in (1, -1)]


def parts_of(x: Tensor) -> list[Tensor]:
    return [x.real.double(), x.imag.double()] if x.is_complex() else [x.double()]


def errors(actual: Tensor, expected: Tensor, *, is_by_parts: bool) -> Tensor:
    """Beside what counts as a number's size; 0 where both are the same, also infinite."""
    found = torch.zeros(expected.shape, dtype=torch.float64)
    for a, b in zip(parts_of(actual), parts_of(expected), strict=True):
        size = (b if is_by_parts else expected.to(torch.complex128)).abs()
        is_subnormal = (a - b).abs() < torch.finfo(torch.float32).smallest_normal  # 0 on the device
        is_same = (a == b) | (a.isnan() & b.isnan()) | is_subnormal
        found = found.maximum(((a - b).abs() / size).masked_fill(is_same, 0))
    return found.nan_to_num(torch.inf)


def is_hard(name: str, z: Tensor) -> Tensor:
    """Where the least change of the number is a large one of the function; and quotients that are
    not finite, of which docs/errors.md tells."""
    if name in ("acos", "acosh", "asin", "asinh"):
        return (z.abs() - 1).abs() < 1e-3
    return (z == 0) & (name == "reciprocal")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_of_all_sizes(name: str, dtype: torch.dtype):
    x = torch.tensor(numbers(), dtype=dtype)
    function = getattr(torch, name)
    actual, expected = function(x.to("xla")).cpu(), function(x)
    assert actual.dtype == expected.dtype
    off = errors(actual, expected, is_by_parts=name in BY_PARTS).masked_fill(is_hard(name, x), 0)
    worst = int(off.argmax())
    assert off[worst] <= 200 * torch.finfo(dtype).eps, (x[worst], actual[worst], expected[worst])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", [*NAMES, "atan", "atanh"])
def test_of_constants(name: str, dtype: torch.dtype):
    function = getattr(torch, name)
    actual = [function(torch.full((3,), z, dtype=dtype, device="xla")) for z in SPECIAL]
    expected = [function(torch.full((3,), z, dtype=dtype)) for z in SPECIAL]
    for z, a, b in zip(SPECIAL, actual, expected, strict=True):
        off = errors(a.cpu(), b, is_by_parts=False)
        off = off.masked_fill(is_hard(name, torch.full((3,), z)), 0)
        assert off.max() <= 200 * torch.finfo(dtype).eps, (z, a.cpu()[0], b[0])


@pytest.mark.parametrize("name", BY_PARTS)
def test_zeros_beside_what_overflows(name: str):
    x = torch.tensor([1000j, -1000j, complex(-0.0, 1000), 1000, -1000], dtype=torch.complex64)
    actual, expected = getattr(torch, name)(x.to("xla")).cpu(), getattr(torch, name)(x)
    for a, b in zip(parts_of(actual), parts_of(expected), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.signbit(), b.signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_angles_of_constants(dtype: torch.dtype):
    for y in (0.0, -0.0, 1.0):
        for x in (0.0, -0.0, -1.0):
            parts = [torch.full((2,), part, dtype=dtype) for part in (y, x)]
            on_xla = [torch.full((2,), part, dtype=dtype, device="xla") for part in (y, x)]
            actual, expected = torch.atan2(*on_xla).cpu(), torch.atan2(*parts)
            assert torch.equal(actual.signbit(), expected.signbit())
            torch.testing.assert_close(actual, expected)
