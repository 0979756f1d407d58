"""A point in the program across which the compiler moves and merges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
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


def behind_barrier(tree: Any) -> Any:
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
