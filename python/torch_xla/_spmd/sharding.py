"""Which part of a tensor is on which device of a mesh."""

from __future__ import annotations

import dataclasses
import enum
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, _nested
from torch_xla._spmd.mesh import Mesh, get_global_mesh

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

    def xla_spec(self, t: torch.Tensor) -> str | None:
        """How a tensor lies by this, as XLA prints it; None if it can't."""
        if not self.can_apply(t):
            return None
        return _text_of(self)

    def apply(self, t: torch.Tensor) -> None:
        """Say that a tensor lies so.

        Raises:
            ValueError: the specification does not fit the tensor.
        """
        place("ShardingSpec.apply", t, self)


@dataclasses.dataclass(frozen=True)
class XLAShard:
    """A part of a tensor: its data on the CPU, and the replica that has it."""

    data: torch.Tensor
    replica_id: int = 0

    @property
    def unpadded_data(self) -> torch.Tensor:
        """The data: on one device there is no padding."""
        return self.data


# By id, as tensors compare by value. An entry goes with its tensor.
_shardings: dict[int, ShardingSpec] = {}
# Those of the entries whose tensors are one device's part, between `enable_manual_sharding` and
# `disable_manual_sharding`.
_manual: set[int] = set()


def _forget(key: int) -> None:
    _shardings.pop(key, None)
    _manual.discard(key)


def _whole(t: torch.Tensor) -> torch.Tensor:
    """The tensor of which something was said: an `XLAShardedTensor` speaks of another one."""
    return getattr(t, "global_tensor", t)


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


def place(what: str, t: torch.Tensor, spec: ShardingSpec, is_manual: bool = False) -> None:
    """Say how an xla tensor lies on a mesh; `what` is for messages.

    Raises:
        ValueError: the specification does not fit the tensor.
    """
    t = _whole(t)
    if not _XLAC._is_xla_tensor(t):
        raise ValueError(f"{what}: expected an xla tensor, got one on {t.device}")
    if not spec.can_apply(t):
        raise ValueError(
            f"{what}: expected an entry for each of the tensor's {t.dim()} dimensions, got "
            f"{spec.partition_spec}"
        )
    if id(t) not in _shardings:
        weakref.finalize(t, _forget, id(t))
    _shardings[id(t)] = spec
    (_manual.add if is_manual else _manual.discard)(id(t))


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """As `mark_sharding`, for a tensor within a computation: its gradient lies alike.

    Returns:
        The tensor, as it is.
    """
    place("mark_sharding_with_gradients", t, ShardingSpec(mesh, tuple(partition_spec)))
    return t


def shard_as(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Let two tensors of one shape lie alike: as was said of `b`, or else of `a`.

    Returns:
        Both tensors.
    """
    if a.shape != b.shape:
        raise ValueError(
            f"shard_as: expected tensors of one shape, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    spec = sharding_of(b) or sharding_of(a)
    if spec is not None:
        place("shard_as", a, spec)
        place("shard_as", b, spec)
    return a, b


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Forget what `mark_sharding` said of a tensor, and return the tensor."""
    t = _whole(t)
    _forget(id(t))
    return t


def sharding_of(t: torch.Tensor) -> ShardingSpec | None:
    """What `mark_sharding` said of a tensor."""
    return _shardings.get(id(_whole(t)))


def sharding_type(t: torch.Tensor) -> ShardingType | None:
    """How a tensor lies on its mesh; None when nothing was said of it."""
    spec = sharding_of(t)
    if spec is None:
        return None
    if id(_whole(t)) in _manual:
        return ShardingType.MANUAL
    used = _axes("sharding_type", spec.mesh, spec.partition_spec)
    if not used:
        return ShardingType.REPLICATED
    return ShardingType.TILED if len(used) == len(spec.mesh.mesh_shape) else ShardingType.PARTIAL


def sharding_text(t: torch.Tensor) -> str:
    """The same as XLA prints it: "{devices=[2,1]0,1}", "{replicated}", "{manual}", or no text.
    Each number is a device, in the order of the tiles; those that hold the same tile are the last
    dimension."""
    spec = sharding_of(t)
    if spec is None:
        return ""
    return "{manual}" if sharding_type(t) == ShardingType.MANUAL else _text_of(spec)


def _text_of(spec: ShardingSpec) -> str:
    sizes = spec.mesh.mesh_shape
    used = _axes("sharding_text", spec.mesh, spec.partition_spec)
    if not used:
        return "{replicated}"
    tiles = [
        math.prod(sizes[axis] for axis in _axes("sharding_text", spec.mesh, (entry,)))
        for entry in spec.partition_spec
    ]
    rest = [axis for axis in range(len(sizes)) if axis not in used]
    copies = math.prod(sizes[axis] for axis in rest)
    numbers = spec.mesh.get_logical_mesh().transpose(used + rest).ravel().tolist()
    shown = ",".join(map(str, [*tiles, copies] if copies > 1 else tiles))
    end = " last_tile_dim_replicate" if copies > 1 else ""
    return f"{{devices=[{shown}]{','.join(map(str, numbers))}{end}}}"


def local_shards(t: torch.Tensor) -> list[XLAShard]:
    """The parts of a tensor that are on this process's devices."""
    return [XLAShard(_whole(t).detach().cpu())]


def check_input_sharding(what: str, input_sharding: Any) -> None:
    """Raises TypeError unless `mark_inputs` can take it."""
    specs = input_sharding.values() if isinstance(input_sharding, Mapping) else [input_sharding]
    for spec in specs:
        if spec is not None and not isinstance(spec, ShardingSpec):
            raise TypeError(
                f"{what}: input_sharding must be a ShardingSpec, or a dict of them, got {spec!r}"
            )


def mark_inputs(batch: Any, input_sharding: Any) -> None:
    """Say how the tensors of a batch lie on a mesh.

    Args:
        batch: xla tensors in containers.
        input_sharding: a ShardingSpec, which holds for the tensors of as many dimensions; or for a
            batch that is a dict, one of ShardingSpecs and None with the same keys.

    Raises:
        ValueError: the keys are not the same.
    """
    if isinstance(input_sharding, Mapping):
        if not isinstance(batch, Mapping) or batch.keys() != input_sharding.keys():
            found = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise ValueError(
                f"input_sharding is for batches with the keys {sorted(input_sharding)}, got {found}"
            )
        for key, spec in input_sharding.items():
            mark_inputs(batch[key], spec)
    elif input_sharding is not None:
        for _, tensor in _nested.walk(batch, lambda v: isinstance(v, torch.Tensor)):
            if input_sharding.can_apply(tensor) and _XLAC._is_xla_tensor(tensor):
                place("input_sharding", tensor, input_sharding)


def manual_region(
    what: str,
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    mesh: Mesh | None,
    is_manual: bool,
) -> torch.Tensor:
    """The tensor on its way into or out of code that sees one device's part: on a mesh of one
    device that is all of it."""
    mesh = mesh or get_global_mesh()
    if mesh is None:
        raise ValueError(f"{what}: there is no mesh; pass one, or set_global_mesh")
    if mesh.size() > 1:
        raise NotImplementedError(f"{what}: a mesh of {mesh.size()} devices is not supported yet")
    moved = _whole(t).clone()
    place(what, moved, ShardingSpec(mesh, tuple(partition_spec)), is_manual)
    return moved


# Without an annotation the extension module's own answer, an empty text, is the right one.
_XLAC._get_xla_sharding_spec = sharding_text  # type: ignore[assignment]
