"""Tensors on a mesh as objects that know their shards. On a mesh of one device the one shard is the
whole tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla import _other_names
from torch_xla._spmd import gradients
from torch_xla._spmd.mesh import Mesh
from torch_xla._spmd.mode import runtime_device_count
from torch_xla._spmd.placements import (
    convert_to_xla_mesh,
    convert_to_xla_partition_spec,
    spec_on,
)
from torch_xla._spmd.sharding import (
    MarkShardingFunction as MarkShardingFunction,
    Part,
    PartitionSpec,
    ShardingSpec,
    ShardingType,
    XLAShard,
    check_is_tensor,
    clear_sharding,
    load_local_shards,
    local_shards,
    manual_region,
    mark_sharding_with_gradients,
    place,
    sharding_of,
    sharding_text,
    sharding_type,
    spec_for,
)


class XLAShardedTensor(torch.Tensor):
    """An xla tensor with what `mark_sharding` says of it. Operations on it are operations on
    `global_tensor`, its gradient is the one there, and what they give are plain tensors.

    Args:
        elem: the tensor, whose memory it shares.
        mesh: the devices, and
        partition_spec: how it lies on them, as for `mark_sharding`; by default what `elem` has.
    """

    def __new__(
        cls,
        elem: torch.Tensor,
        mesh: Mesh | None = None,
        partition_spec: PartitionSpec | None = None,
    ) -> XLAShardedTensor:
        check_is_tensor("XLAShardedTensor", elem)
        # Code that looks past __torch_function__ finds an alias, through which gradients flow.
        with torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
            return elem.as_subclass(cls)

    def __init__(
        self,
        elem: torch.Tensor,
        mesh: Mesh | None = None,
        partition_spec: PartitionSpec | None = None,
    ) -> None:
        super().__init__()
        self.global_tensor = elem
        if (mesh is None) != (partition_spec is None):
            raise ValueError(
                "XLAShardedTensor: expected both a mesh and a partition_spec, or neither, got "
                f"{mesh} and {partition_spec}"
            )
        if mesh is not None and partition_spec is not None:
            spec = spec_for("XLAShardedTensor", elem.shape, mesh, partition_spec)
            place("XLAShardedTensor", elem, spec)

    @property
    def local_shards(self) -> list[XLAShard]:
        """The parts on this process's devices, on the CPU."""
        return local_shards(self.global_tensor)

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Put the parts' values into the tensor."""
        load_local_shards(self.global_tensor, shards)

    @property
    def sharding_type(self) -> ShardingType | None:
        """How the tensor lies on its mesh; None when nothing was said of it."""
        return sharding_type(self.global_tensor)

    @property
    def sharding_spec(self) -> str:
        """The same as XLA prints it."""
        return sharding_text(self.global_tensor)

    @property
    def partition_spec(self) -> PartitionSpec | None:
        spec = sharding_of(self.global_tensor)
        return None if spec is None else spec.partition_spec

    @property
    def device_mesh(self) -> Mesh | None:
        spec = sharding_of(self.global_tensor)
        return None if spec is None else spec.mesh

    @property
    def placements(self) -> tuple[Any, ...]:
        """As DTensor has them, an entry per axis of the mesh."""
        from torch.distributed.tensor import Replicate, Shard

        mesh, spec = self.device_mesh, self.partition_spec
        if mesh is None or spec is None:
            return (Replicate(),)
        names = mesh.axis_names or ()
        placed: list[Any] = [Replicate()] * len(mesh.mesh_shape)
        for dimension, entry in enumerate(spec):
            for axis in entry if isinstance(entry, tuple) else (entry,):
                if axis is not None:
                    placed[names.index(axis) if isinstance(axis, str) else axis] = Shard(dimension)
        return tuple(placed)

    def redistribute(
        self,
        device_mesh: Any = None,
        placements: Sequence[Any] = (),
        *,
        async_op: bool = False,
        forward_dtype: torch.dtype | None = None,
        backward_dtype: torch.dtype | None = None,
    ) -> XLAShardedTensor:
        """A tensor of the same value, as its gradient, with another sharding.

        Args:
            device_mesh: a `Mesh`, or a `DeviceMesh` of xla devices; by default the tensor's.
            placements: `Shard(dim)` or `Replicate()` by axis of the mesh, or a partition spec.
            async_op: whether not to wait: nothing ever waits.
            forward_dtype: must be None, as must
            backward_dtype: XLA exchanges what there is.

        Raises:
            ValueError: there is no mesh, or the placements do not fit it or the tensor.
            NotImplementedError: there is a dtype.
        """
        del async_op
        for name, dtype in (("forward_dtype", forward_dtype), ("backward_dtype", backward_dtype)):
            if dtype is not None:
                raise NotImplementedError(
                    f"redistribute: {name}={dtype} is not supported under SPMD: convert the tensor"
                )
        mesh = device_mesh if device_mesh is not None else self.device_mesh
        if mesh is None:
            raise ValueError("redistribute: expected a mesh, as nothing was said of the tensor")
        t, entries = self.global_tensor, tuple(placements)
        is_spec = not any(hasattr(placement, "is_shard") for placement in entries)
        if is_spec:
            over = mesh if isinstance(mesh, Mesh) else convert_to_xla_mesh(mesh)
            spec = spec_for("redistribute", t.shape, over, entries)
        elif isinstance(mesh, Mesh):
            spec = ShardingSpec(mesh, convert_to_xla_partition_spec(t, entries))
        else:
            spec = spec_on("redistribute", t, mesh, entries)
        return XLAShardedTensor(mark_sharding_with_gradients(t, spec.mesh, spec.partition_spec))

    def full_tensor(self, *, grad_placements: Any = None) -> torch.Tensor:
        """A plain tensor of the value, whole on every device."""
        del grad_placements
        spec = sharding_of(self.global_tensor)
        if spec is None:
            return self.global_tensor.clone()
        nowhere = (None,) * self.global_tensor.dim()
        return mark_sharding_with_gradients(self.global_tensor, spec.mesh, nowhere)

    def to_local(self, *, grad_placements: Any = None) -> torch.Tensor:
        """The plain tensor: one program for all devices sees all of it."""
        del grad_placements
        return self.global_tensor

    invalidate_spec_cache = _other_names.Refused(
        "torch_xla.distributed.spmd.XLAShardedTensor.invalidate_spec_cache",
        "nothing is cached: the sharding is looked up when one asks",
        "leave it out",
    )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wrappers: dict[int, XLAShardedTensor] = {}

        def whole(value: Any) -> Any:
            if not isinstance(value, XLAShardedTensor):
                return value
            wrappers[id(value.global_tensor)] = value
            return value.global_tensor

        args, kwargs = pytree.tree_map(whole, (args, kwargs or {}))
        if any(isinstance(t, Part) for t in pytree.tree_leaves((args, kwargs))):
            result = func(*args, **kwargs)  # which is checked there
            return cls(result) if func is torch.Tensor.detach else wrappers.get(id(result), result)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if func is torch.Tensor.detach:  # nn.Parameter wants the class that it was given
            spec = sharding_of(args[0])
            return cls(result, spec.mesh, spec.partition_spec) if spec else cls(result)
        if func is torch.Tensor.requires_grad_:  # and then this
            gradients.follow(result)
        # What writes to the tensor returns it.
        return wrappers.get(id(result), result)


def _say(
    what: str, t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec, *, replaces: bool
) -> None:
    check_is_tensor(what, t)
    place(what, t, spec_for(what, t.shape, mesh, partition_spec), replaces=replaces)


def mark_sharding(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec | None
) -> XLAShardedTensor:
    """Say how a tensor's memory lies on a mesh: it holds for all tensors that share it, and for the
    values that are written to it later. Of a view it holds for the value that it has now. A
    dimension that has no equal parts is whole between programs, and split within them.

    Args:
        t: the tensor. What is said holds for it too, not for the result alone.
        mesh: the devices.
        partition_spec: per dimension None, or the name or number of the axis that splits it, or a
            tuple of them. None: what was said is forgotten.

    Returns:
        The tensor as one that knows its sharding.

    Raises:
        ValueError: the specification does not fit the mesh or the tensor, the mesh has not all
            devices, or something else was said of the tensor.
    """
    if partition_spec is None:
        plain = clear_sharding(t)
        return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(plain)
    _say("mark_sharding", t, mesh, partition_spec, replaces=False)
    marked: XLAShardedTensor = wrap_if_sharded(t)
    return marked


def annotate_custom_sharding(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> XLAShardedTensor:
    """As `mark_sharding`, for a tensor of which something else was said before: from here on it
    lies so."""
    _say("annotate_custom_sharding", t, mesh, partition_spec, replaces=True)
    marked: XLAShardedTensor = wrap_if_sharded(t)
    return marked


def wrap_as_sharded_tensor(
    t: torch.Tensor,
    mesh_shape: Sequence[int] | None = None,
    partition_spec: PartitionSpec | None = None,
) -> XLAShardedTensor:
    """A tensor as one that knows its sharding; with a partition spec, it is said first, for all
    devices in a mesh of that shape."""
    if isinstance(t, XLAShardedTensor) or partition_spec is None:
        return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(t)
    shape = tuple(mesh_shape or (runtime_device_count(),))
    return XLAShardedTensor(t, Mesh(range(runtime_device_count()), shape), partition_spec)


def unwrap_sharded_tensor(t: torch.Tensor) -> torch.Tensor:
    """The plain tensor."""
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


@contextlib.contextmanager
def no_dispatch() -> Iterator[None]:
    """A context in which operations on tensors of this class give plain ones."""
    with torch._C.DisableTorchFunctionSubclass():
        yield


def wrap_if_sharded(x: Any) -> Any:
    """A tensor of which something was said as one that knows it; anything else as it is."""
    is_plain = isinstance(x, torch.Tensor) and not isinstance(x, XLAShardedTensor)
    return XLAShardedTensor(x) if is_plain and sharding_of(x) is not None else x


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """Let the code that follows see, as `global_tensor` of the result, each device's part of a
    tensor: it has the part's shape, and each device computes with its own. Nothing is exchanged
    until `disable_manual_sharding`; tensors that take part have to be parts too, or whole on all
    devices: one of which it is said or known that it is split is a ValueError. Gradients pass. A
    read gives the first device's part, `local_shards` all of them.

    Args:
        t: the tensor.
        partition_spec: how it is split, as for `mark_sharding`; into equal parts.
        mesh: the devices; by default the global mesh.

    Raises:
        ValueError: there is no mesh, or the specification does not fit it or the tensor.
    """
    return XLAShardedTensor(manual_region("enable_manual_sharding", t, partition_spec, mesh))


def disable_manual_sharding(
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    full_shape: Sequence[int],
    *,
    mesh: Mesh | None = None,
) -> XLAShardedTensor:
    """Make one tensor of shape `full_shape` of the devices' parts: what `enable_manual_sharding`
    began ends. Along axes that `partition_spec` does not name the parts have to be equal.

    Raises:
        ValueError: there is no mesh, or the specification does not fit it, the shape or the part.
    """
    return XLAShardedTensor(
        manual_region("disable_manual_sharding", t, partition_spec, mesh, full_shape)
    )
