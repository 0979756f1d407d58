"""Devices in a grid with named axes."""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_xla import _other_names
from torch_xla._spmd.mode import is_spmd, runtime_device_count


def _sizes(what: str, argument: str, sizes: Any) -> tuple[int, ...]:
    """Sizes of a grid as numbers of Python's; `what` and `argument` are for messages.

    Raises:
        TypeError: they are none.
    """
    try:
        return tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise TypeError(f"{what}: {argument} must be a tuple of sizes, got {sizes!r}") from None


class Mesh:
    """Devices in a grid.

    Args:
        device_ids: the numbers of all devices, in row-major order of the grid.
        mesh_shape: the sizes of the grid.
        axis_names: a name for each of its dimensions.

    Raises:
        ValueError: the numbers do not fill the grid, or a name is there twice.
        RuntimeError: there are several devices, and `torch_xla.runtime.use_spmd` was not called.
    """

    def __init__(
        self,
        device_ids: Any,
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        self.device_ids = np.asarray(device_ids)
        self.mesh_shape = _sizes("Mesh", "mesh_shape", mesh_shape)
        if not np.issubdtype(self.device_ids.dtype, np.integer) and self.device_ids.size > 0:
            raise TypeError(f"Mesh: device_ids must be the numbers of devices, got {device_ids!r}")
        if isinstance(axis_names, str):
            raise TypeError(f"Mesh: axis_names must be a tuple of names, got {axis_names!r}")
        self.axis_names = tuple(axis_names) if axis_names is not None else None
        count = runtime_device_count()
        numbers = sorted(self.device_ids.ravel().tolist())
        sizes_are_positive = all(size > 0 for size in self.mesh_shape)
        if not sizes_are_positive or math.prod(self.mesh_shape) != len(numbers):
            raise ValueError(f"Mesh: {len(numbers)} devices do not fill a grid of {mesh_shape}")
        if numbers != list(range(count)):
            raise ValueError(
                f"Mesh: expected each of the {count} devices once, got the numbers {numbers} for a "
                f"grid of {mesh_shape}"
            )
        if count > 1 and not is_spmd():
            raise RuntimeError(
                f"Mesh: {count} devices are {count} devices of their own; call "
                "torch_xla.runtime.use_spmd() first"
            )
        if self.axis_names is not None and (
            len(self.axis_names) != len(self.mesh_shape)
            or len(set(self.axis_names)) != len(self.axis_names)
            or not all(isinstance(name, str) for name in self.axis_names)
        ):
            raise ValueError(
                f"Mesh: expected a name of its own for each dimension of {mesh_shape}, got "
                f"{axis_names}"
            )

    def size(self) -> int:
        """How many devices the mesh has."""
        return math.prod(self.mesh_shape)

    def shape(self) -> OrderedDict[Any, int]:
        """The sizes by name, or by number without names."""
        names = self.axis_names or range(len(self.mesh_shape))
        return OrderedDict(zip(names, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> Any:
        """The numbers of the devices as an array of the mesh's shape."""
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """The dimension of that name, or None."""
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    get_op_sharding = get_op_sharding_v2 = _other_names.Refused(
        "torch_xla.distributed.spmd.Mesh.get_op_sharding",
        "shardings are texts, not objects of XLA",
        "call ShardingSpec.xla_spec or spmd.sharding_text",
    )
    from_str = _other_names.Refused(
        "torch_xla.distributed.spmd.Mesh.from_str",
        "meshes are not read from texts",
        "call Mesh(device_ids, mesh_shape, axis_names)",
    )
    get_jax_mesh = _other_names.Refused(
        "torch_xla.distributed.spmd.Mesh.get_jax_mesh",
        "JAX's devices belong to another client than these",
        "call jax.sharding.Mesh on JAX's",
    )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mesh)
            and self.mesh_shape == other.mesh_shape
            and self.axis_names == other.axis_names
            and np.array_equal(self.device_ids, other.device_ids)
        )

    def __hash__(self) -> int:
        return hash((self.mesh_shape, self.axis_names))

    def __repr__(self) -> str:
        return f"Mesh({dict(self.shape())})"


class HybridMesh(Mesh):
    """A mesh within and between slices of a machine.

    Args:
        ici_mesh_shape: the sizes within a slice.
        dcn_mesh_shape: the sizes between slices, one per dimension; ones by default.
        axis_names: a name for each dimension.
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        within = _sizes("HybridMesh", "ici_mesh_shape", ici_mesh_shape)
        between = _sizes("HybridMesh", "dcn_mesh_shape", dcn_mesh_shape or (1,) * len(within))
        if len(between) != len(within):
            raise ValueError(
                f"HybridMesh: both shapes must have one rank, got {within} and {between}"
            )
        shape = tuple(a * b for a, b in zip(within, between, strict=True))
        super().__init__(np.arange(math.prod(shape)), shape, axis_names)
        self.ici_mesh_shape = within
        self.dcn_mesh_shape = between


_global_mesh: Mesh | None = None


def set_global_mesh(mesh: Mesh | None) -> None:
    """Choose the mesh that `get_global_mesh` gives.

    Raises:
        TypeError: it is neither a mesh nor None.
    """
    global _global_mesh
    if mesh is not None and not isinstance(mesh, Mesh):
        raise TypeError(f"set_global_mesh: expected a Mesh, got {mesh!r}")
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    """What `set_global_mesh` chose, or None."""
    return _global_mesh


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices in a row."""
    count = runtime_device_count()
    return Mesh(np.arange(count), (count,), (axis_name,) if axis_name is not None else None)
