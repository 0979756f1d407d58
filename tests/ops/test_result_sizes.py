"""A call's work is bounded by its arguments' sizes: the text of a program does not grow with its
result, nor with the numbers that an operator is given."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import torch_xla
import torch_xla.core.xla_model as xm

_MODES = {
    "nearest": {},
    "nearest-exact": {},
    "linear": {},
    "bilinear": {},
    "bilinear-aa": {"antialias": True},
    "bicubic": {},
    "bicubic-aa": {"antialias": True},
    "trilinear": {},
}
_RANKS = {"linear": 1, "trilinear": 3}


def resampled(mode: str, x: torch.Tensor, size: int, **options) -> torch.Tensor:
    """`x` with its last dimension resampled to `size`, the other ones by 1 more."""
    sizes = [n + 1 for n in x.shape[2:-1]] + [size]
    plain = mode.removesuffix("-aa")
    return functional.interpolate(x, sizes, mode=plain, **_MODES[mode], **options)


def resampled_gradient(mode: str, x: torch.Tensor, size: int) -> torch.Tensor:
    """The gradient to an input of `size`, of an output of x's size."""
    wide = x.new_zeros(()).expand(*x.shape[:-1], size).requires_grad_()
    return torch.autograd.grad(resampled(mode, wide, x.shape[-1]).sum(), wide)[0]


def image(mode: str, device, *, last: int = 7) -> torch.Tensor:
    rank = _RANKS.get(mode, 2)
    shape = [2, 3] + [4] * (rank - 1) + [last]
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator).to(device)


def max_pool_gradient(x: torch.Tensor, stride: int) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(functional.max_pool2d(x, 2, stride=stride).sum(), x)[0]


def unfolded_and_folded(x: torch.Tensor, size: int) -> torch.Tensor:
    columns = functional.unfold(x, (1, size), padding=(0, size))
    return functional.fold(columns, x.shape[2:], (1, size), padding=(0, size))


def aligned(x: torch.Tensor, size: int) -> torch.Tensor:
    """A connectionist loss of a target of which so many labels are used."""
    steps = torch.zeros(1, 1, 5, device=x.device).log_softmax(2).expand(size, 1, 5)
    targets = torch.ones(1, 1, dtype=torch.long, device=x.device).expand(1, size)
    return functional.ctc_loss(steps, targets, (size,), (size,))


_SIZED = {
    "kaiser_window": lambda x, n: torch.kaiser_window(n, device=x.device),
    "mvlgamma": lambda x, n: x.mvlgamma(n),
    "unfold": lambda x, n: functional.unfold(x, (1, n), padding=(0, n)),
    "fold": unfolded_and_folded,
    "linspace": lambda x, n: torch.linspace(0, 1, n, device=x.device),
    "tril_indices": lambda x, n: torch.tril_indices(4, n, device=x.device),
    "repeat": lambda x, n: x.repeat(1, 1, 1, n),
    "hann_window": lambda x, n: torch.hann_window(n, device=x.device),
    "adaptive_avg_pool2d": lambda x, n: functional.adaptive_avg_pool2d(x, (3, n + 1)),
    "adaptive_max_pool2d": lambda x, n: functional.adaptive_max_pool2d(x, (3, n + 1)),
    "gradient of max_pool2d": max_pool_gradient,
    "ctc_loss": aligned,
}
_SIZED |= {m: lambda x, n, m=m: resampled(m, image(m, x.device), n + 1) for m in _MODES}
_SIZED |= {
    f"gradient of {m}": lambda x, n, m=m: resampled_gradient(m, image(m, x.device), n + 1)
    for m in _MODES
}


@pytest.mark.parametrize("name", _SIZED)
def test_text_does_not_grow_with_the_result(name, device):
    x = image("bilinear", device)
    # A sum of many numbers takes two steps, however many they are.
    exponents = (18, 23) if name == "mvlgamma" else (8, 18)
    short, long = (len(xm.get_stablehlo([_SIZED[name](x, 2**n)])) for n in exponents)
    # Only the sizes are longer numbers.
    assert long < 1.25 * short, (short, long)


def assert_close(of, x: torch.Tensor, device) -> None:
    results = of(x.to(device))
    torch_xla.sync()
    torch.testing.assert_close(results, of(x), check_device=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("mode", _MODES)
def test_resampling(mode, dtype, device):
    x = image(mode, "cpu", last=20)
    if dtype == torch.uint8:
        if mode in ("linear", "trilinear"):
            pytest.skip("not of bytes on the CPU")
        x = (x * 60 + 120).clamp(0, 255)
    x = x.to(dtype)
    # Repeats, and other sizes that grow and fall.
    sizes = (60, 67, 13)
    assert_close(lambda x: [resampled(mode, x, n) for n in sizes], x, device)
    if dtype.is_floating_point:
        assert_close(lambda x: [resampled_gradient(mode, x, n) for n in sizes], x, device)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 12},
        {"kernel_size": (12, 11), "stride": (12, 11)},
        {"kernel_size": (3, 50), "dilation": (2, 1), "padding": (1, 20), "stride": (1, 3)},
    ],
    ids=str,
)
def test_many_kernel_positions(options, device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 9, (2 * 3 * 24 * 22,), generator=generator).float().reshape(2, 3, 24, 22)
    columns = functional.unfold(x, **options)
    assert torch.equal(functional.unfold(x.to(device), **options).cpu(), columns)
    assert_close(lambda x: functional.fold(x, (24, 22), **options), columns, device)


def test_pooling_with_long_strides(device):
    assert_close(lambda x: max_pool_gradient(x, 7), image("bilinear", "cpu", last=30), device)


@pytest.mark.parametrize("p", [1, 3, 40])
def test_multivariate_gamma(p, device):
    x = torch.linspace(20, 90, 12).reshape(3, 4)
    assert_close(lambda x: x.mvlgamma(p), x, device)
    assert_close(lambda x: x.double().mvlgamma(p), x, device)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("beta", [0.0, 2.5, 12.0, 80.0])
def test_kaiser_windows(beta, periodic, device):
    for length in (0, 1, 2, 7, 5000):
        window = torch.kaiser_window(length, periodic, beta, dtype=torch.float64, device=device)
        expected = torch.kaiser_window(length, periodic, beta, dtype=torch.float64)
        torch.testing.assert_close(window.cpu(), expected)
