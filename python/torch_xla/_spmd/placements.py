"""Meshes and placements of torch.distributed.tensor as those of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch_xla._spmd.mesh import Mesh
from torch_xla._spmd.mode import is_spmd
from torch_xla._spmd.sharding import ShardingSpec, mark_sharding_with_gradients, place, sharding_of


def is_annotated(dt_mesh: Any) -> bool:
    """Whether placements on that mesh are annotations of one program over all its devices."""
    return (
        is_spmd()
        and getattr(dt_mesh, "device_type", None) == "xla"
        and not getattr(dt_mesh, "_is_of_replicas", False)
    )


def _root(dt_mesh: Any) -> Any:
    """The whole of a mesh of which some dimensions were taken, as by `mesh["tp"]`."""
    return dt_mesh._get_root_mesh() if hasattr(dt_mesh, "_get_root_mesh") else dt_mesh


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """The mesh of a `torch.distributed.DeviceMesh`; of a part of one, the whole.

    Raises:
        ValueError: it is not one of xla devices, or it does not have all of them.
    """
    if getattr(dt_mesh, "device_type", None) is None:
        raise TypeError(f"expected a DeviceMesh of xla devices, got {dt_mesh!r}")
    if dt_mesh.device_type != "xla":
        raise ValueError(f"expected a mesh of xla devices, got one of {dt_mesh.device_type}")
    root = _root(dt_mesh)
    numbers = np.asarray(root.mesh.tolist())
    return Mesh(numbers.ravel(), numbers.shape, root.mesh_dim_names)


def _axes(dt_mesh: Any) -> list[int]:
    """The axes of `convert_to_xla_mesh(dt_mesh)` that its dimensions are."""
    root = _root(dt_mesh)
    if root is dt_mesh:
        return list(range(dt_mesh.mesh.ndim))
    names = root.mesh_dim_names
    for name in dt_mesh.mesh_dim_names:
        if name not in names:
            raise ValueError(
                f"expected a part of the mesh {names}, got the dimension {name!r}: take several "
                "dimensions by their names in the place of a flattened one"
            )
    return [names.index(name) for name in dt_mesh.mesh_dim_names]


def convert_to_xla_partition_spec(
    tensor: torch.Tensor, placements: Sequence[Any]
) -> tuple[Any, ...]:
    """The axis of the mesh, by number, that splits each dimension, or a tuple of them; placements
    are by axis.

    Raises:
        ValueError: a placement is neither of one of the tensor's dimensions nor a replica.
    """
    axes = list(range(len(placements)))
    return _spec("convert_to_xla_partition_spec", tensor, placements, axes, [()] * tensor.dim())


def _spec(
    what: str,
    tensor: torch.Tensor,
    placements: Sequence[Any],
    axes: Sequence[int],
    before: Sequence[tuple[int, ...]],
) -> tuple[Any, ...]:
    used = list(before)
    for axis, placement in zip(axes, placements, strict=True):
        if placement.is_replicate():
            continue
        if not placement.is_shard() or not -tensor.dim() <= placement.dim < tensor.dim():
            raise ValueError(
                f"{what}: a tensor of shape {tuple(tensor.shape)} can't be placed as {placement} "
                "on a mesh of xla devices: expected Replicate(), or Shard of one of its dimensions"
            )
        used[placement.dim] = (*used[placement.dim], axis)
    return tuple((entry[0] if len(entry) == 1 else entry) if entry else None for entry in used)


def spec_on(
    what: str, tensor: torch.Tensor, dt_mesh: Any, placements: Sequence[Any] | None
) -> ShardingSpec:
    """How a tensor lies on the whole of a mesh when it is placed on that mesh or a part of it:
    along the other axes it lies as it did.

    Args:
        what: the operation, for messages.
        tensor: an xla tensor.
        dt_mesh: a `DeviceMesh` of xla devices.
        placements: by dimension of the mesh `Shard(dim)` or `Replicate()`; replicated by default.

    Raises:
        ValueError: they do not fit the tensor or the mesh.
    """
    mesh, axes = convert_to_xla_mesh(dt_mesh), _axes(dt_mesh)
    if placements is not None and len(placements) != len(axes):
        raise ValueError(
            f"{what}: expected a placement of the tensor of shape {tuple(tensor.shape)} for each "
            f"of the {len(axes)} dimensions of {dt_mesh}, got {tuple(placements)}"
        )
    before: list[tuple[int, ...]] = [()] * tensor.dim()
    said = sharding_of(tensor)
    if said is not None and said.mesh == mesh and len(axes) < len(mesh.mesh_shape):
        for dimension, entry in enumerate(said.partition_spec):
            numbers = [
                mesh.get_axis_name_idx(axis) if isinstance(axis, str) else axis
                for axis in (entry if isinstance(entry, (tuple, list)) else (entry,))
            ]
            kept = [axis for axis in numbers if axis is not None and axis not in axes]
            before[dimension] = tuple(kept)
    if placements is None:
        return ShardingSpec(mesh, _spec(what, tensor, (), (), before))
    return ShardingSpec(mesh, _spec(what, tensor, placements, axes, before))


def annotate(what: str, tensor: torch.Tensor, dt_mesh: Any, placements: Sequence[Any]) -> None:
    """Say that an xla tensor lies by placements; `what` is for messages.

    Raises:
        ValueError: they do not fit the tensor or the mesh.
    """
    place(what, tensor, spec_on(what, tensor, dt_mesh, placements))


def annotated(tensor: torch.Tensor, dt_mesh: Any, placements: Sequence[Any]) -> torch.Tensor:
    """The same within a computation, for a new tensor and its gradient. A mesh that is a part says
    nothing of how activations lie along the other axes, so that it is left to XLA."""
    if tensor.device.type != "xla" or _root(dt_mesh) is not dt_mesh:
        return tensor
    spec = spec_on("parallelize_module", tensor, dt_mesh, placements)
    return mark_sharding_with_gradients(tensor, spec.mesh, spec.partition_spec)
