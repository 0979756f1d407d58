"""Which part of a tensor is on which device of a mesh."""

from __future__ import annotations

import dataclasses
import enum
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from torch_xla import _XLAC, _nested
from torch_xla._spmd import gradients
from torch_xla._spmd.mesh import Mesh, get_global_mesh
from torch_xla._spmd.mode import runtime_device_count, spans_processes

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
        _check_types("ShardingSpec", self.mesh, self.partition_spec)
        if not isinstance(self.minibatch, bool):
            raise TypeError(f"ShardingSpec: minibatch must be a bool, got {self.minibatch!r}")
        object.__setattr__(self, "partition_spec", tuple(self.partition_spec))
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
    # Where the part is in the tensor, by dimension.
    indices: tuple[slice, ...] = ()

    @property
    def unpadded_data(self) -> torch.Tensor:
        """The data: there is no padding in it."""
        return self.data


# What the library's texts of shardings stand for, which leave out that dimensions at the end are
# whole.
_specs: dict[str, ShardingSpec] = {}
# Of tensors that share their memory with others of other shapes, views, and of manual ones: what is
# said of a view holds for its value then. By id, as tensors compare by value. An entry goes with
# its tensor.
_shardings: dict[int, ShardingSpec] = {}
# Those of the entries whose tensors are one device's part, between `enable_manual_sharding` and
# `disable_manual_sharding`.
_manual: set[int] = set()
# Of parameters that were moved from the device: how they lay, and are to lie when they come back.
_away: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _forget(key: int) -> None:
    _shardings.pop(key, None)
    _manual.discard(key)


def whole(t: torch.Tensor) -> torch.Tensor:
    """The tensor of which something was said: an `XLAShardedTensor` speaks of another one."""
    return getattr(t, "global_tensor", t)


def _cannot_lie(
    what: str, mesh: Mesh, spec: PartitionSpec, shape: Sequence[int] | None, why: str
) -> ValueError:
    """The error for a tensor and what was said of it, if there is a tensor."""
    tensor = "a tensor" if shape is None else f"a tensor of shape {tuple(shape)}"
    return ValueError(f"{what}: {tensor} can't lie by {tuple(spec)} on {mesh}: {why}")


def _check_types(what: str, mesh: Any, partition_spec: Any) -> None:
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"{what}: mesh must be a torch_xla.distributed.spmd.Mesh, got {mesh!r}; "
            "convert_to_xla_mesh makes one of a DeviceMesh"
        )
    if not isinstance(partition_spec, (tuple, list)):
        raise TypeError(
            f"{what}: partition_spec must be a tuple with an entry for each dimension of the "
            f"tensor, got {partition_spec!r}"
        )


def _number_of_axis(mesh: Mesh, axis: Any) -> int | None:
    """The axis as a number; None if the mesh has no such axis."""
    if isinstance(axis, str):
        return mesh.get_axis_name_idx(axis)
    is_number = isinstance(axis, (int, np.integer)) and not isinstance(axis, bool)
    return int(axis) if is_number and 0 <= axis < len(mesh.mesh_shape) else None


def _axes(
    what: str, mesh: Mesh, partition_spec: PartitionSpec, shape: Sequence[int] | None = None
) -> list[int]:
    """The axes of the mesh that a specification uses, as numbers; `shape` is for messages."""
    used: list[int] = []
    for entry in partition_spec:
        for axis in entry if isinstance(entry, (tuple, list)) else [entry]:
            if axis is None:
                continue
            number = _number_of_axis(mesh, axis)
            if number is None:
                why = f"the mesh has no axis {axis!r}"
                raise _cannot_lie(what, mesh, partition_spec, shape, why)
            if number in used:
                why = f"each axis may split one dimension once, and {axis!r} is there again"
                raise _cannot_lie(what, mesh, partition_spec, shape, why)
            used.append(number)
    return used


def spec_for(
    what: str, shape: Sequence[int], mesh: Mesh, partition_spec: PartitionSpec
) -> ShardingSpec:
    """The specification for a tensor of that shape; `what` is for messages.

    Raises:
        TypeError: the mesh or the specification is none.
        ValueError: the specification does not fit the mesh or the shape.
    """
    _check_types(what, mesh, partition_spec)
    _axes(what, mesh, partition_spec, shape)
    spec = ShardingSpec(mesh, tuple(partition_spec))
    _check(what, shape, spec)
    return spec


def _text(what: str, spec: ShardingSpec) -> str:
    """The library's name for what a specification says."""
    mesh = spec.mesh
    text = _XLAC._make_sharding(
        list(mesh.mesh_shape),
        mesh.device_ids.ravel().tolist(),
        [str(name) for name in mesh.axis_names or ()],
        [_axes(what, mesh, (entry,)) for entry in spec.partition_spec],
    )
    _specs[text] = spec
    return text


def text_of_spec(spec: ShardingSpec) -> str:
    """The library's name for what a specification says, of which it knows from now on."""
    return _text("ShardingSpec", spec)


def _check(what: str, shape: Sequence[int], spec: ShardingSpec) -> None:
    if len(shape) != len(spec.partition_spec):
        why = f"expected an entry for each of its {len(shape)} dimensions"
    elif spec.mesh.size() != runtime_device_count():
        why = f"expected a mesh of all {runtime_device_count()} devices"
    else:
        return
    raise _cannot_lie(what, spec.mesh, spec.partition_spec, shape, why)


def check_is_tensor(what: str, t: Any) -> None:
    """Raises TypeError if it is none; `what` is for messages."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{what}: expected an xla tensor, got {t!r}")


def _check_is_xla(what: str, t: Any, spec: ShardingSpec) -> None:
    check_is_tensor(what, t)
    if not _XLAC._is_xla_tensor(t):
        why = f"expected an xla tensor, got one on {t.device}; move it to 'xla' first"
        raise _cannot_lie(what, spec.mesh, spec.partition_spec, t.shape, why)


def place(
    what: str,
    t: torch.Tensor,
    spec: ShardingSpec,
    is_manual: bool = False,
    replaces: bool = True,
) -> None:
    """Say how an xla tensor lies on a mesh, and its gradient; `what` is for messages.

    Raises:
        ValueError: the specification does not fit the tensor or the devices, or something else was
            said of the tensor and `replaces` is false.
    """
    t = whole(t)
    _check_is_xla(what, t, spec)
    _check(what, t.shape, spec)
    if isinstance(t, Part) and not is_manual:
        why = "it is a part of a tensor, between enable_ and disable_manual_sharding"
        raise _cannot_lie(what, spec.mesh, spec.partition_spec, t.shape, why)
    text = _text(what, spec)
    before = sharding_of(t) if not replaces else None
    if before is not None and _text(what, before) != text and _is_said(t):
        why = (
            f"of this one was said that it lies by {before.partition_spec} on {before.mesh}; "
            "clear_sharding(t) first, or annotate_custom_sharding"
        )
        raise _cannot_lie(what, spec.mesh, spec.partition_spec, t.shape, why)
    _forget(id(t))
    if is_manual or _XLAC._is_view(t):
        weakref.finalize(t, _forget, id(t))
        _shardings[id(t)] = spec
    if is_manual:
        _manual.add(id(t))
        return
    _XLAC._mark_sharding(t, text)
    gradients.follow(t)


def _is_said(t: torch.Tensor) -> bool:
    """Whether the user said how a tensor lies: else it lies as it came out."""
    return id(t) in _shardings or bool(_XLAC._marked_sharding(t))


class MarkShardingFunction(torch.autograd.Function):
    """`mark_sharding_with_gradients` as an autograd function."""

    @staticmethod
    def forward(
        ctx: Any, torch_tensor: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
    ) -> torch.Tensor:
        what = "mark_sharding_with_gradients"
        check_is_tensor(what, torch_tensor)
        ctx.spec = spec_for(what, torch_tensor.shape, mesh, partition_spec)
        _check_is_xla(what, torch_tensor, ctx.spec)
        marked = torch_tensor.clone()
        place(what, marked, ctx.spec)
        return marked

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad = grad_output.clone()
        place("mark_sharding_with_gradients", grad, ctx.spec)
        return grad, None, None


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: PartitionSpec
) -> torch.Tensor:
    """As `mark_sharding`, for a tensor within a computation: its gradient lies alike.

    Returns:
        A tensor of the same value, of which it is said, as it is of its gradient; the tensor that
        was given stays as it is.
    """
    marked: torch.Tensor = MarkShardingFunction.apply(whole(t), mesh, partition_spec)  # type: ignore[no-untyped-call]
    return marked


def shard_as(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Let two tensors of one shape lie alike: as was said of `b`, or else of `a`.

    Returns:
        Both tensors.
    """
    for t in (a, b):
        check_is_tensor("shard_as", t)
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
    t = whole(t)
    check_is_tensor("clear_sharding", t)
    _forget(id(t))
    _away.pop(t, None)
    if _XLAC._is_xla_tensor(t):
        _XLAC._clear_sharding(t)
    return t


def sharding_of(t: torch.Tensor) -> ShardingSpec | None:
    """What `mark_sharding` said of a tensor's memory; else how it came out of a program."""
    t = whole(t)
    check_is_tensor("sharding_of", t)
    said = _shardings.get(id(t))
    if said is not None or not _XLAC._is_xla_tensor(t):
        return said
    spec = _specs.get(_XLAC._sharding_of(t))
    if spec is None or spec.can_apply(t):
        return spec
    entries = (*spec.partition_spec, *[None] * t.dim())[: t.dim()]
    return dataclasses.replace(spec, partition_spec=entries)


def way_of(t: torch.Tensor) -> ShardingSpec | None:
    """How a tensor lies, or lay before it was moved from the device."""
    spec: ShardingSpec | None = _away.get(t)
    return sharding_of(t) if spec is None else spec


def keep_way(t: torch.Tensor, spec: ShardingSpec | None) -> None:
    """Let a tensor that was moved or copied lie by `spec`, when it is on xla: how that did which it
    was made of. If that is None, as it came out."""
    if spec is None:
        gradients.follow(t)
        return
    if not _XLAC._is_xla_tensor(t):
        _away[t] = spec
        return
    _away.pop(t, None)
    place("mark_sharding", t, spec)


def sharding_type(t: torch.Tensor) -> ShardingType | None:
    """How a tensor lies on its mesh; None when nothing was said of it."""
    spec = sharding_of(t)
    if spec is None:
        return None
    if id(whole(t)) in _manual:
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
    return _XLAC._tiling_text(_text("sharding_text", spec), len(spec.partition_spec))


def local_shards(t: torch.Tensor) -> list[XLAShard]:
    """The parts of a tensor that are on this process's devices, in their order: on the CPU. Parts
    of the same place have different numbers of replicas."""
    check_is_tensor("local_shards", whole(t))
    shards: list[XLAShard] = []
    copies: dict[tuple[int, ...], int] = {}
    for data, starts, sizes in _XLAC._local_shards(whole(t).detach()):
        number = copies.get(tuple(starts), 0)
        copies[tuple(starts)] = number + 1
        places = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))
        shards.append(XLAShard(data, number, places))
    return shards


def load_local_shards(t: torch.Tensor, shards: Sequence[XLAShard]) -> None:
    """Put the values of a tensor's parts, in the order of `local_shards`, into it.

    Raises:
        ValueError: there are not as many, or not of the same shapes.
    """
    t = whole(t)
    now = local_shards(t)
    spec = sharding_of(t)
    lies = f" by {spec.partition_spec} on {spec.mesh}" if spec is not None else ", whole"
    tensor = f"load_local_shards_: a tensor of shape {tuple(t.shape)} lies{lies}"
    if len(shards) != len(now):
        raise ValueError(f"{tensor}: expected {len(now)} shards, got {len(shards)}")
    value = torch.empty(t.shape, dtype=t.dtype)
    for i, (shard, part) in enumerate(zip(shards, now, strict=True)):
        if not isinstance(shard, XLAShard):
            raise TypeError(f"{tensor}: expected an XLAShard for device {i}, got {shard!r}")
        if shard.data.shape != part.data.shape:
            raise ValueError(
                f"{tensor}: expected a shard of shape {tuple(part.data.shape)} for device {i}, "
                f"got {tuple(shard.data.shape)}"
            )
        value[part.indices] = shard.data.cpu()
    with torch.no_grad():
        t.copy_(value)


def check_input_sharding(what: str, input_sharding: Any) -> None:
    """Raises TypeError unless `inputs_of` can take it."""
    specs = input_sharding.values() if isinstance(input_sharding, Mapping) else [input_sharding]
    for spec in specs:
        if spec is not None and not isinstance(spec, ShardingSpec):
            raise TypeError(
                f"{what}: input_sharding must be a ShardingSpec, or a dict of them, got {spec!r}"
            )


def inputs_of(batch: Any, input_sharding: Any) -> Iterator[tuple[torch.Tensor, ShardingSpec]]:
    """The tensors of a batch of which `input_sharding` says something, and what.

    Args:
        batch: tensors in containers.
        input_sharding: a ShardingSpec, which holds for the tensors of as many dimensions; or for a
            batch that is a dict, one of ShardingSpecs and None with the same keys.

    Raises:
        ValueError: the keys are not the same, or a specification does not fit its key's tensor.
    """
    if isinstance(input_sharding, Mapping):
        if not isinstance(batch, Mapping) or batch.keys() != input_sharding.keys():
            found = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise ValueError(
                f"input_sharding is for batches with the keys {sorted(input_sharding)}, got {found}"
            )
        for key, spec in input_sharding.items():
            if spec is not None and isinstance(batch[key], torch.Tensor):
                _check(f"input_sharding[{key!r}]", batch[key].shape, spec)
            yield from inputs_of(batch[key], spec)
    elif input_sharding is not None:
        for _, tensor in _nested.walk(batch, lambda v: isinstance(v, torch.Tensor)):
            if input_sharding.can_apply(tensor):
                yield tensor, input_sharding


def upload(what: str, t: torch.Tensor, device: torch.device, spec: ShardingSpec) -> torch.Tensor:
    """A CPU tensor on the device: each of the devices that this stands for gets its part."""
    _check(what, t.shape, spec)
    if spec.minibatch and spans_processes():
        raise NotImplementedError(
            f"{what}: minibatch=True is not supported where a mesh spans processes: give each of "
            "them the whole batch, of which it takes its devices' parts"
        )
    return _XLAC._upload_sharded(t, device.index, _text(what, spec))


class Part(torch.Tensor):
    """Each device's part of a tensor, between `enable_manual_sharding` and
    `disable_manual_sharding`, and what is computed with it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for t in pytree.tree_leaves((args, kwargs)):
            if isinstance(t, torch.Tensor) and not isinstance(t, cls):
                _check_takes_part(func, t)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            if func in torch.overrides.get_default_nowrap_functions():
                return result
            return pytree.tree_map(_as_part, result)


def _as_part(value: Any) -> Any:
    """A tensor on the device as a part; anything else as it is."""
    if type(value) is not torch.Tensor or not _XLAC._is_xla_tensor(value):
        return value
    return value.as_subclass(Part)


def _not_as_part(t: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return t.as_subclass(torch.Tensor) if isinstance(t, Part) else t


def _check_takes_part(func: Any, t: torch.Tensor) -> None:
    """Raises ValueError if it is known of a tensor that devices have different parts of it: it
    would be another one than they compute with."""
    with torch._C.DisableTorchFunctionSubclass():
        if sharding_type(t) not in (ShardingType.TILED, ShardingType.PARTIAL):
            return
        spec = sharding_of(t)
        assert spec is not None  # as it has a type
        name = getattr(func, "__name__", func)
        raise ValueError(
            f"{name}: a tensor of shape {tuple(whole(t).shape)} that lies by {spec.partition_spec} "
            f"on {spec.mesh} can't meet each device's part of another one: expected a part of it "
            "too, by enable_manual_sharding, or a tensor that is whole on all devices"
        )


class _Manual(torch.autograd.Function):
    """A tensor as each device's part of it, or the tensor of these parts: each is the other one's
    gradient."""

    @staticmethod
    def forward(
        ctx: Any, t: torch.Tensor, text: str, full_shape: torch.Size | None
    ) -> torch.Tensor:
        ctx.text, ctx.full_shape = text, t.shape if full_shape is None else None
        if full_shape is None:
            moved: torch.Tensor = torch.ops.xla._full_to_shard(t, text)
        else:
            moved = torch.ops.xla._shard_to_full(t, text, full_shape)
        return moved

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad = _Manual.apply(_not_as_part(grad_output), ctx.text, ctx.full_shape)  # type: ignore[no-untyped-call]
        return grad, None, None


def axes_of(spec: ShardingSpec) -> set[int]:
    """The axes of its mesh that split a tensor, as numbers."""
    return set(_axes("ShardingSpec", spec.mesh, spec.partition_spec))


def has_equal_parts(spec: ShardingSpec, shape: Sequence[int]) -> bool:
    """Whether each device's part of a tensor of that shape has the same shape."""
    counts = [_num_parts("ShardingSpec", spec.mesh, entry) for entry in spec.partition_spec]
    return all(size % count == 0 for size, count in zip(shape, counts, strict=True))


def _num_parts(what: str, mesh: Mesh, entry: Any) -> int:
    """Of a dimension with that entry."""
    return math.prod(mesh.mesh_shape[axis] for axis in _axes(what, mesh, (entry,)))


def _part_shape(what: str, spec: ShardingSpec, full_shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of each device's part.

    Raises:
        ValueError: the parts would not be equal.
    """
    part = []
    for dimension, (size, entry) in enumerate(zip(full_shape, spec.partition_spec, strict=True)):
        count = _num_parts(what, spec.mesh, entry)
        if size % count != 0:
            why = f"expected dimension {dimension} to have {count} equal parts along {entry!r}"
            raise _cannot_lie(what, spec.mesh, spec.partition_spec, full_shape, why)
        part.append(size // count)
    return tuple(part)


def manual_region(
    what: str,
    t: torch.Tensor,
    partition_spec: PartitionSpec,
    mesh: Mesh | None,
    full_shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """The tensor on its way into code that sees one device's part, or, with the shape that it has
    then, out of it; `what` is for messages.

    Raises:
        ValueError: there is no mesh, or the specification does not fit it or the tensor.
    """
    mesh = mesh or get_global_mesh()
    if mesh is None:
        raise ValueError(f"{what}: there is no mesh; pass one, or set_global_mesh")
    t = whole(t)
    check_is_tensor(what, t)
    spec = spec_for(what, t.shape if full_shape is None else full_shape, mesh, partition_spec)
    _check_is_xla(what, t, spec)
    part = _part_shape(what, spec, t.shape if full_shape is None else full_shape)
    if full_shape is not None and part != tuple(t.shape):
        why = f"expected {part}, which is each device's part of it, got {tuple(t.shape)}"
        raise _cannot_lie(what, mesh, partition_spec, full_shape, why)
    t = _not_as_part(t)
    if mesh.size() == 1:
        moved = t.clone()
    else:
        shape = None if full_shape is None else torch.Size(full_shape)
        moved = _Manual.apply(t, _text(what, spec), shape)  # type: ignore[no-untyped-call]
    if full_shape is None:
        with torch._C.DisableTorchFunctionSubclass():
            moved = _as_part(moved)
    place(what, moved, spec, is_manual=full_shape is None)
    return moved


# Without an annotation the extension module's own answer, an empty text, is the right one.
_XLAC._get_xla_sharding_spec = sharding_text  # type: ignore[assignment]
