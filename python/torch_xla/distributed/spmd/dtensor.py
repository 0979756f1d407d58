"""What torch.distributed.tensor calls for meshes of xla devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from torch_xla import _other_names
from torch_xla._replicas import device_mesh as replicas
from torch_xla.distributed.spmd.placements import (
    convert_to_xla_mesh as convert_to_xla_mesh,
    convert_to_xla_partition_spec as convert_to_xla_partition_spec,
)
from torch_xla.distributed.spmd.sharded_tensor import mark_sharding


def xla_distribute_tensor(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any] | None = None
) -> Any:
    """A tensor spread over a mesh of one device, or of replicas (then it is a DTensor).

    Args:
        tensor: the tensor, on any device.
        device_mesh: a `torch.distributed.DeviceMesh` of xla devices.
        placements: by axis, `Shard(dim)` or `Replicate()`; replicated by default.
    """
    if replicas.is_of_replicas(device_mesh):
        return replicas.distribute_tensor(tensor, device_mesh, placements)
    mesh = convert_to_xla_mesh(device_mesh)
    moved = tensor if tensor.device.type == "xla" else tensor.to("xla")
    spec = convert_to_xla_partition_spec(moved, placements or ())
    return mark_sharding(moved, mesh, spec)


def auto_policy(mod_name: str, mod: nn.Module, mesh: Any) -> None:
    """A `partition_fn` for `xla_distribute_module` that leaves the choice to XLA. On one device
    there is one: all of each parameter."""
    del mod_name
    placed = convert_to_xla_mesh(mesh)
    if placed.size() > 1:
        raise NotImplementedError(
            f"auto_policy: a mesh of {placed.size()} devices is not supported yet"
        )
    for parameter in mod.parameters(recurse=False):
        mark_sharding(parameter, placed, (None,) * parameter.dim())


def xla_distribute_module(
    module: nn.Module,
    device_mesh: Any = None,
    partition_fn: Callable[[str, nn.Module, Any], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> nn.Module:
    """Spread a module's parameters over a mesh.

    Args:
        module: the module, moved to the device.
        device_mesh: a `torch.distributed.DeviceMesh` of xla devices.
        partition_fn: called with the name, module and mesh of each module inside.
        input_fn: called with the module, its inputs and the mesh before `forward`.
        output_fn: called with the module, its outputs and the mesh after it.
    """
    module.to("xla")
    for name, child in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, child, device_mesh)
        if replicas.is_of_replicas(device_mesh):
            replicas.replicate_rest(child, device_mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, device_mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, _, outputs: output_fn(m, outputs, device_mesh))
    return module


__getattr__ = _other_names.refusing(__name__)
