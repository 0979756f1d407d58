"""Which part of a tensor is on which device of a mesh."""

from __future__ import annotations

import dataclasses
import enum
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla.distributed.spmd.mesh import Mesh

# Per dimension of a tensor: None, or the axis or axes of the mesh that split it.
PartitionSpec = Sequence[Any]


class ShardingType(enum.IntEnum):
    """How a tensor lies on a mesh."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


@dataclasses.dataclass(frozen=True)
class ShardingSpec:
    """How the batches of a loader lie on a mesh.

    Args:
        mesh: the devices.
        partition_spec: per dimension None, or the axis or axes of the mesh that split it.
        minibatch: each host has its own part of the batch.
    """

    mesh: Mesh
    partition_spec: tuple[Any, ...]
    minibatch: bool = False

    def __post_init__(self) -> None:
        _axes("ShardingSpec", self.mesh, self.partition_spec)

    def can_apply(self, t: torch.Tensor) -> bool:
        """Whether a tensor has as many dimensions as the specification."""
        return len(t.shape) == len(self.partition_spec)


@dataclasses.dataclass(frozen=True)
class XLAShard:
    """A part of a tensor: its data on the CPU, and the replica that has it."""

    data: torch.Tensor
    replica_id: int = 0


# By id, as tensors compare by value. An entry goes with its tensor.
_shardings: dict[int, ShardingSpec] = {}


def _axes(what: str, mesh: Mesh, partition_spec: PartitionSpec) -> list[int]:
    """The axes of the mesh that a specification uses, as numbers."""
    used: list[int] = []
    for entry in partition_spec:
        for axis in entry if isinstance(entry, (tuple, list)) else [entry]:
            if axis is None:
                continue
            number = mesh.get_axis_name_idx(axis) if isinstance(axis, str) else axis
            if number is None or not 0 <= number < len(mesh.mesh_shape):
                raise ValueError(f"{what}: the mesh {mesh} has no axis {axis!r}")
            used.append(number)
    if len(set(used)) != len(used):
        raise ValueError(f"{what}: each axis may split one dimension, got {partition_spec}")
    return used


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec) -> torch.Tensor:
    """Say how a tensor lies on a mesh.

    Args:
        t: the tensor.
        mesh: the devices.
        partition_spec: per dimension None, or the name or number of the axis that splits it, or a
            tuple of them.

    Returns:
        The tensor.

    Raises:
        ValueError: the specification does not fit the mesh or the tensor.
    """
    if not _XLAC._is_xla_tensor(t):
        raise ValueError(f"mark_sharding: expected an xla tensor, got one on {t.device}")
    if len(partition_spec) != t.dim():
        raise ValueError(
            f"mark_sharding: expected an entry for each of the tensor's {t.dim()} dimensions, got "
            f"{partition_spec}"
        )
    spec = ShardingSpec(mesh, tuple(partition_spec))
    if id(t) not in _shardings:
        weakref.finalize(t, _shardings.pop, id(t), None)
    _shardings[id(t)] = spec
    return t


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """As `mark_sharding`, for a tensor within a computation: its gradient lies alike."""
    return mark_sharding(t, mesh, partition_spec)


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Forget what `mark_sharding` said of a tensor."""
    _shardings.pop(id(t), None)
    return t


def sharding_of(t: torch.Tensor) -> ShardingSpec | None:
    """What `mark_sharding` said of a tensor."""
    return _shardings.get(id(t))


def wrap_if_sharded(x: Any) -> Any:
    """The value: on a mesh of one device every tensor is whole."""
    return x


def local_shards(t: torch.Tensor) -> list[XLAShard]:
    """The parts of a tensor that are on this process's devices."""
    return [XLAShard(t.detach().cpu())]
