"""Programs of test_split_operators.py, run in a child with four devices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import op_samples
import split
import torch
from torch import nn

import torch_xla
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


def dilated(t: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(20, device=t.device)
    out[2 : 2 + 2 * t.shape[0] : 2] = t
    return out


def differences_of_padding() -> list[str]:
    """Of padding at both ends, between elements and less than none, of what is split before and
    after; in one program for each way to split."""
    xr.use_spmd()
    mesh = xs.Mesh(range(4), (2, 2), ("x", "y"))
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        f"pad {low}, {high}": lambda t, ends=(low, high): nn.functional.pad(t, ends, value=9.0)
        for low in range(-2, 3)
        for high in range(-2, 3)
    }
    functions["shift"] = lambda t: nn.functional.pad(t, (1, 0))[..., :-1]
    functions["dilated"] = dilated
    found = []
    for spec, size in ((("x",), 8), ((("y", "x"),), 7)):
        x = torch.arange(1.0, size + 1)
        for is_split_before in (False, True):
            outcomes = []
            for name, function in functions.items():
                ours = x.to("xla") + 0
                if is_split_before:
                    xs.mark_sharding(ours, mesh, spec)
                got = function(ours)
                if not is_split_before:
                    xs.annotate_custom_sharding(got, mesh, spec)
                outcomes.append((f"{name} of {size}, {spec}", got, function(x)))
            torch_xla.sync()
            found += [what for what, got, want in outcomes if not torch.equal(got.cpu(), want)]
    return found


def differences_of_pairs() -> list[str]:
    """Of operators with two results that lie in different ways."""
    xr.use_spmd()
    mesh = xs.Mesh(range(4), (2, 2), ("x", "y"))
    x = torch.randn(4, 4, 8, 8)
    functions: dict[str, Callable[[torch.Tensor], Any]] = {
        "cummax": lambda t: torch.cummax(t, 0),
        "cummin": lambda t: torch.cummin(t, 2),
        "max_pool2d": lambda t: nn.functional.max_pool2d(t, 7, 1, return_indices=True),
        "sort": lambda t: torch.sort(t, 1),
    }
    ways = [(None, "x"), ("y", None), ("x", "y"), ("x", ())]
    found = []
    for name, function in functions.items():
        for first, second in ways:
            got = function(x.to("xla"))
            for t, axis in zip(got, (first, second), strict=True):
                if axis is not None:
                    xs.annotate_custom_sharding(t, mesh, (axis or None, None, None, None))
            for t, want in zip(got, function(x), strict=True):
                if not torch.equal(t.cpu(), want):
                    found.append(f"{name}, {first} and {second}")
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
