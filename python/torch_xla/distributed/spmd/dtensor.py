"""What torch.distributed.tensor calls for meshes of xla devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from torch_xla import _other_names
from torch_xla._replicas import device_mesh as replicas
from torch_xla._spmd.placements import (
    convert_to_xla_mesh as convert_to_xla_mesh,
    convert_to_xla_partition_spec as convert_to_xla_partition_spec,
    spec_on,
)
from torch_xla._spmd.sharding import check_is_tensor
from torch_xla.distributed.spmd.sharded_tensor import annotate_custom_sharding, mark_sharding


def xla_distribute_tensor(
    tensor: torch.Tensor, device_mesh: Any, placements: Sequence[Any] | None = None
) -> Any:
    """A tensor spread over a mesh: of all devices of this process, as an annotation of the tensor,
    or of replicas, as a DTensor.

    Args:
        tensor: the tensor, on any device; one that is on the device already is annotated itself.
        device_mesh: a `torch.distributed.DeviceMesh` of xla devices, or a part of one: along the
            other dimensions the tensor lies as it did.
        placements: by dimension of the mesh, `Shard(dim)` or `Replicate()`; replicated by default.

    Raises:
        ValueError: the placements do not fit the tensor or the mesh.
    """
    check_is_tensor("distribute_tensor", tensor)
    if replicas.is_of_replicas(device_mesh):
        return replicas.distribute_tensor(tensor, device_mesh, placements)
    moved = tensor if tensor.device.type == "xla" else tensor.to("xla")
    spec = spec_on("distribute_tensor", moved, device_mesh, placements)
    return annotate_custom_sharding(moved, spec.mesh, spec.partition_spec)


def auto_policy(mod_name: str, mod: nn.Module, mesh: Any) -> None:
    """A `partition_fn` for `xla_distribute_module` that splits each parameter over all devices.
    It is split along the largest of its dimensions that has equal parts, so that each device holds
    as little as it can, and gathered where it is used."""
    del mod_name
    placed = convert_to_xla_mesh(mesh)
    every_axis = tuple(range(len(placed.mesh_shape)))
    for parameter in mod.parameters(recurse=False):
        fitting = [d for d, size in enumerate(parameter.shape) if size % placed.size() == 0]
        largest = max(fitting, key=lambda d: parameter.shape[d], default=None)
        spec = tuple(every_axis if d == largest else None for d in range(parameter.dim()))
        mark_sharding(parameter, placed, spec)


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
