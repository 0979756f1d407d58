"""PyTorch's `DeviceMesh` and DTensor over replicas. torch makes no process groups for meshes of
type `xla` and hands its tensors to SPMD; here meshes of several processes get what those of every
other type have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from torch_xla._replicas import world
from torch_xla._spmd.mode import is_spmd
from torch_xla._wrapping import to_wrap


def is_of_replicas(mesh: Any) -> bool:
    """Whether the mesh is one of processes, which exchange by their process groups."""
    return getattr(mesh, "_is_of_replicas", False)


def install() -> None:
    """Let `DeviceMesh("xla", ...)` make process groups in a job of several."""
    from torch.distributed.device_mesh import DeviceMesh

    make: Callable[..., None] = to_wrap(DeviceMesh, "__init__")
    if hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        is_job = world.world_size() > 1 or dist.is_initialized()
        is_ours = device_type == "xla" and is_job and not is_spmd()
        make(self, "cpu" if is_ours else device_type, *args, **kwargs)
        if is_ours:
            self._device_type = "xla"
            self._is_of_replicas = True

    DeviceMesh.__init__ = init  # type: ignore[method-assign]


def distribute_tensor(tensor: Tensor, mesh: Any, placements: Sequence[Any] | None) -> Any:
    """As that of `torch.distributed.tensor`: the values are those of the mesh's first member.

    Args:
        tensor: the whole tensor, on any device.
        mesh: a `DeviceMesh` of replicas.
        placements: by axis, `Shard(dim)` or `Replicate()`; replicated by default.
    """
    from torch.distributed.tensor import DTensor, Replicate

    placements = list(placements or [Replicate()] * mesh.ndim)
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"distribute_tensor: a mesh of {mesh.ndim} axes takes as many placements, got "
            f"{placements}"
        )
    local = tensor.detach().to("xla", copy=True).contiguous()
    coordinate = mesh.get_coordinate()
    for axis, placement in enumerate(placements):
        dist.broadcast(local, group=mesh.get_group(axis), group_src=0)
        if placement.is_shard():
            parts = local.tensor_split(
                _bounds(local.size(placement.dim), mesh.size(axis)), placement.dim
            )
            local = parts[coordinate[axis]].contiguous()
        elif not placement.is_replicate():
            raise ValueError(f"distribute_tensor: a tensor can't be placed as {placement}")
    made = DTensor.from_local(
        local, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
    return made.requires_grad_(tensor.requires_grad)


def _bounds(size: int, count: int) -> list[int]:
    """Where DTensor cuts: parts as `torch.chunk` makes them, the last of which may be empty."""
    part = -(-size // count)
    return [min(size, part * i) for i in range(1, count)]


def replicate_rest(module: nn.Module, mesh: Any) -> None:
    """Make DTensors of the parameters and buffers that are none yet."""
    from torch.distributed.tensor import DTensor

    for name, parameter in module.named_parameters(recurse=False):
        if not isinstance(parameter, DTensor):
            spread = distribute_tensor(parameter, mesh, None)
            module.register_parameter(name, nn.Parameter(spread.detach(), parameter.requires_grad))
    for name, buffer in list(module.named_buffers(recurse=False)):
        if not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh, None)
