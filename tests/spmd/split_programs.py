"""Programs of test_split_operators.py, run in a child with four devices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import op_samples
import split
import torch

import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


def differences() -> list[str]:
    """Of transforms of 8x8x8 elements, which four devices have equal parts of."""
    xr.use_spmd()
    mesh = xs.get_1d_mesh("x")
    x = torch.randn(8, 8, 8)
    found = []
    for dims in ((0,), (1,), (2,), (0, 1), (0, 2), (2, 1), (0, 1, 2)):
        for split_dim in range(3):
            spec = tuple("x" if d == split_dim else None for d in range(3))
            ours = xs.mark_sharding(x.to("xla"), mesh, spec).global_tensor
            for function in (torch.fft.fftn, torch.fft.rfftn, torch.fft.ifftn):
                got, want = function(ours, dim=dims), function(x, dim=dims)
                if not torch.allclose(got.cpu(), want, rtol=1e-4, atol=1e-4):
                    found.append(f"{function.__name__} along {dims}, split along {split_dim}")
    return found


def found_when_broken() -> tuple[list[split.Problem], list[split.Problem]]:
    """What is found of `abs` that is wrong, and that raises, where its operand is split."""
    entry = next(op for op in op_samples.entries() if op.full_name == "abs")

    def wrong(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        is_split = x.device.type == "xla" and xs.sharding_of(x) is not None
        return x.abs() + 1 if is_split else x.abs()

    def failing(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        if x.device.type == "xla" and xs.sharding_of(x) is not None:
            raise ValueError("broken")
        return x.abs()

    def problems(function: Callable[..., torch.Tensor]) -> list[split.Problem]:
        broken = copy.copy(entry)
        broken.op = function
        return split.check(broken, torch.float32, 1, [split.Case(0), split.Case(0, 0, 0)])

    return problems(wrong), problems(failing)
