"""Activation checkpointing: what a part of the forward pass computes is not kept for the backward
pass but computed again.

XLA would see that the second computation is the first one's, and keep the first one's results after
all. A barrier that the compiler may not look behind, around what the second starts from, prevents
it. `import torch_xla` puts that barrier into `torch.utils.checkpoint` too, so that either may be
used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils import _pytree as pytree

from torch_xla import _XLAC


def _barrier(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors behind a barrier, there when what was recorded last is: else the compiler might
    compute at the beginning what the end of the backward pass needs, and keep it until then."""
    latest = _XLAC._latest_pending(tensors[0].device.index)
    operands = [*tensors, latest] if latest is not None else list(tensors)
    return _XLAC._record_region("optimization_barrier", [], operands, len(tensors))[0]


class _Barrier(torch.autograd.Function):
    """The tensors, which the compiler takes for new ones."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_barrier(tensors))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return grads


def _behind_barrier(tree: Any) -> Any:
    """`tree` with its xla tensors behind one barrier."""
    leaves, spec = pytree.tree_flatten(tree)
    ours = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and _XLAC._is_xla_tensor(leaf)
    ]
    if ours:
        results = _Barrier.apply(*(leaves[i] for i in ours))  # type: ignore[no-untyped-call]
        for i, result in zip(ours, results, strict=True):
            # One that needs a gradient makes all results of the function need one.
            leaves[i] = result if leaves[i].requires_grad else result.detach()
    return pytree.tree_unflatten(leaves, spec)


def optimization_barrier_(tensors: list[torch.Tensor]) -> None:
    """Keep the compiler from moving or merging computations across this point, in place."""
    with torch.no_grad():
        results, _ = _XLAC._record_region("optimization_barrier", [], tensors, len(tensors))
        for tensor, result in zip(tensors, results, strict=True):
            tensor.copy_(result)


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """`torch.utils.checkpoint.checkpoint`, under the name that torch_xla gave it."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)


def install() -> None:
    """Put the barrier where `torch.utils.checkpoint` computes again."""
    module: Any = torch.utils.checkpoint
    make_generator = module._checkpoint_without_reentrant_generator
    detach_variable = module.detach_variable

    @functools.wraps(make_generator)
    def with_barrier(fn: Callable[..., Any], *rest: Any, **kwargs: Any) -> Any:
        # The forward pass calls the user's function itself; this one computes it again.
        @functools.wraps(fn)
        def again(*args: Any, **keywords: Any) -> Any:
            args, keywords = _behind_barrier((args, keywords))
            return fn(*args, **keywords)

        return make_generator(again, *rest, **kwargs)

    @functools.wraps(detach_variable)
    def detached_behind_barrier(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        detached = detach_variable(inputs)
        with torch.no_grad():
            moved = _behind_barrier(detached)
        return tuple(
            m.requires_grad_(d.requires_grad) if isinstance(d, torch.Tensor) and m is not d else m
            for m, d in zip(moved, detached, strict=True)
        )

    module._checkpoint_without_reentrant_generator = with_barrier
    module.detach_variable = detached_behind_barrier
