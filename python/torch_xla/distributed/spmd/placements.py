"""Meshes and placements of torch.distributed.tensor as those of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torch_xla._spmd.mesh import Mesh


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """The mesh of a `torch.distributed.DeviceMesh`.

    Raises:
        ValueError: it is not one of xla devices.
    """
    if dt_mesh.device_type != "xla":
        raise ValueError(f"expected a mesh of xla devices, got one of {dt_mesh.device_type}")
    numbers = np.asarray(dt_mesh.mesh.tolist())
    return Mesh(numbers.ravel(), numbers.shape, dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(
    tensor: torch.Tensor, placements: Sequence[Any]
) -> tuple[Any, ...]:
    """The axis of the mesh, by number, that splits each dimension; placements are by axis.

    Raises:
        ValueError: a placement is neither of one dimension nor a replica.
    """
    spec: list[Any] = [None] * tensor.dim()
    for axis, placement in enumerate(placements):
        if placement.is_shard():
            spec[placement.dim] = axis
        elif not placement.is_replicate():
            raise ValueError(f"a tensor of an xla mesh can't be placed as {placement}")
    return tuple(spec)
