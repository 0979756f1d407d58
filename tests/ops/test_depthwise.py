"""Convolutions of one channel each, by kernels of ours where PyTorch's are slow on the CPU."""

from __future__ import annotations

import re

import counts
import pytest
import torch
from torch.nn import functional as nnf

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.runtime as xr
from torch_xla import _XLAC

_SIZES = (9, 8, 7)
_KERNEL = (4, 3, 2)
# Channels, outputs of each, and the arguments of the convolution.
_CASES = {
    "plain": (3, 1, {}),
    "padded more than the kernel": (2, 1, {"padding": 4}),
    "two of each": (4, 2, {"padding": 2}),
    "strides": (5, 1, {"stride": 2, "padding": 1}),
    "strides, three of each": (3, 3, {"stride": 2, "padding": 3}),
    "gaps": (4, 1, {"dilation": 2, "stride": 3, "padding": 2}),
    "transposed": (3, 1, {"stride": 2, "padding": 1, "transposed": True}),
}
_TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 8e-2, "float16": 1e-2}


def called(tensors: list[torch.Tensor]) -> set[str]:
    text = _XLAC._graph_of(tensors, "stablehlo")
    return set(re.findall(r"torch_xla\.(depthwise\w*)", text))


def value_and_gradients(name: str, dims: int, dtype: str, device: str) -> list[torch.Tensor]:
    channels, each, given = _CASES[name]
    arguments = {"groups": channels, **given}
    is_transposed = arguments.pop("transposed", False)
    convolve = getattr(nnf, f"conv_transpose{dims}d" if is_transposed else f"conv{dims}d")
    torch.manual_seed(0)
    of = getattr(torch, dtype)
    leaves = [
        torch.randn(*sizes).to(device, of).requires_grad_()
        for sizes in (
            (2, channels, *_SIZES[:dims]),
            (channels * each, 1, *_KERNEL[:dims]),
        )
    ]
    value = convolve(*leaves, **arguments)
    grad = torch.linspace(-1, 1, value.numel()).view(value.shape).to(device, of)
    return [value.detach(), *torch.autograd.grad(value, leaves, grad)]


# In one program for each dtype, which compiles as long as one of them.
@pytest.mark.parametrize("dtype", _TOLERANCES)
def test_values_and_gradients(dtype):
    cases = [(name, dims, dtype) for name in _CASES for dims in (1, 2, 3)]
    metrics.clear_counters()
    on_device = [value_and_gradients(*case, "xla") for case in cases]
    if xr.device_type() == "CPU":
        for (_, dims, _), tensors in zip(cases, on_device, strict=True):
            kernels = {"depthwise_adjoint_weight"}
            if dtype == "float64" or (dtype == "float32" and dims == 1):
                kernels |= {"depthwise_correlate", "depthwise_adjoint_input"}
            assert called(tensors) == kernels
    assert not counts.left_the_device()
    torch_xla.sync()
    tolerance = _TOLERANCES[dtype]
    for case, results in zip(cases, on_device, strict=True):
        for mine, theirs in zip(results, value_and_gradients(*case, "cpu"), strict=True):
            scale = max(1.0, theirs.abs().max().item())
            assert torch.allclose(mine.cpu(), theirs, tolerance, tolerance * scale), case


@pytest.mark.skipif(xr.device_type() != "CPU", reason="programs call the host on the CPU alone")
def test_weights_that_onednn_is_fast_for_are_left_to_it():
    x = torch.randn(2, 4, 6, 6, device="xla")
    weight = torch.randn(4, 1, 3, 3, device="xla", requires_grad=True)
    grads = torch.autograd.grad(nnf.conv2d(x, weight, groups=4).sum(), weight)
    assert not called(list(grads))
