"""What lines of random programs call to say how tensors lie on a mesh. On the CPU, and where the
device is one, they change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

__all__ = ["SCOPE"]

# By dimension of a tensor, as far as it has that many: None, or the axis or axes that split it.
Spec = tuple[Any, ...]


def _is_on_mesh(t: torch.Tensor) -> bool:
    _ = t.grad_fn  # of a view that a write made invalid raises, as an annotation does
    return t.device.type == "xla" and xr.is_spmd()


def _fitted(spec: Spec, t: torch.Tensor) -> Spec:
    return (*spec, *[None] * t.dim())[: t.dim()]


def split(t: torch.Tensor, sizes: Sequence[int], devices: list[int], spec: Spec) -> torch.Tensor:
    """The tensor, which lies by `spec` from now on over `devices` in a grid of `sizes`."""
    if _is_on_mesh(t):
        xs.annotate_custom_sharding(t, xs.Mesh(devices, sizes), _fitted(spec, t))
    return t


def spread(t: torch.Tensor, sizes: Sequence[int], devices: list[int], spec: Spec) -> torch.Tensor:
    """A copy that lies so, and its gradient too."""
    if not _is_on_mesh(t):
        return t.clone()
    return xs.mark_sharding_with_gradients(t, xs.Mesh(devices, sizes), _fitted(spec, t))


def clear(t: torch.Tensor) -> torch.Tensor:
    """The tensor, of which nothing is said any more."""
    return xs.clear_sharding(t) if _is_on_mesh(t) else t


SCOPE = {"split": split, "spread": spread, "clear": clear}
