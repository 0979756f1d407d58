"""What replicas exchange, by the names and with the arguments of `xm`: callers of PyTorch's
functional collectives, which record it for the program (src/ops/collectives.cpp)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, _nested, _saving
from torch_xla._replicas import functional, meetings, world
from torch_xla._replicas.arguments import check_outputs, check_tensors
from torch_xla._replicas.groups import (
    Groups,
    check_members,
    check_shares,
    own_group,
    spoken_replicas,
)
from torch_xla._replicas.meetings import Group

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

# As PyTorch's functional collectives call them.
_REDUCTIONS = {
    REDUCE_SUM: "sum",
    REDUCE_MUL: "product",
    REDUCE_AND: "band",
    REDUCE_OR: "bor",
    REDUCE_MIN: "min",
    REDUCE_MAX: "max",
}


def _reduction(what: str, reduce_type: str) -> str:
    if reduce_type not in _REDUCTIONS:
        raise ValueError(
            f"{what}: the reduction must be one of {', '.join(_REDUCTIONS)}, got {reduce_type!r}"
        )
    return _REDUCTIONS[reduce_type]


_UNBOUNDED_MB = 1 << 40


def _into(what: str, output: Any, result: Any) -> Any:
    """Results in the tensors that the caller gave for them."""
    if output is None:
        return result
    check_outputs(what, "output", output, result)
    if isinstance(output, torch.Tensor):
        return output.copy_(result)
    for target, value in zip(output, result, strict=True):
        target.copy_(value)
    return output


def _scaled(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    return tensor if scale == 1.0 else tensor * scale


def _gathered(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """The members' tensors, one behind the other along `dim`."""
    tensor.size(dim)  # raises if there is no such dimension
    rows = functional.all_gather(tensor, group.size, group.name)
    return torch.cat(rows.unbind(0), dim)


def _reduced_part(
    tensor: torch.Tensor, op: str, scale: float, dim: int, group: Group
) -> torch.Tensor:
    """This member's part, along `dim`, of the members' tensors reduced."""
    if tensor.size(dim) % group.size:
        raise ValueError(
            f"reduce_scatter: dimension {dim}, of size {tensor.size(dim)}, does not divide into "
            f"{group.size} parts"
        )
    in_front = tensor.movedim(dim, 0)
    part = functional.reduce_scatter(in_front, op, group.size, group.name)
    return _scaled(part.movedim(0, dim), scale)


def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> Any:
    """Reduce over the replicas.

    Args:
        reduce_type: `REDUCE_SUM`, `REDUCE_MUL`, `REDUCE_AND`, `REDUCE_OR`, `REDUCE_MIN` or
            `REDUCE_MAX`.
        inputs: a tensor, or a list of tensors, which are reduced in place.
        scale: what the results are multiplied by.
        groups: the replicas that reduce with each other; all by default.
        pin_layout: accepted for compatibility.

    Returns:
        A new tensor, or the list.
    """
    del pin_layout
    op = _reduction("all_reduce", reduce_type)
    group = own_group("all_reduce", groups)
    check_tensors("all_reduce", "inputs", inputs)
    if isinstance(inputs, torch.Tensor):
        return _scaled(functional.all_reduce(inputs, op, group.name), scale)
    with torch.no_grad():
        functional.all_reduce_(inputs, op, group.name)
        if scale != 1.0:
            for tensor in inputs:
                tensor.mul_(scale)
    return inputs


def all_reduce_bucketized_gradients(
    gradients: Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:
    """Sum gradients over the replicas, in place, in pieces of up to `bucket_cap_mb` megabytes (0:
    all at once)."""

    def reduce(bucket: list[torch.Tensor]) -> list[torch.Tensor]:
        all_reduce(REDUCE_SUM, bucket, scale, groups, pin_layout)
        return bucket

    cap = bucket_cap_mb or _UNBOUNDED_MB
    CoalescingBuckets(reduce, gradients, bucket_cap_mb=cap, groups=groups)()


def all_gather(
    value: torch.Tensor | Sequence[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """The replicas' tensors, one behind the other along `dim`; in `output` if that is given."""
    del pin_layout, channel_id, use_global_device_ids
    group = own_group("all_gather", groups)
    check_tensors("all_gather", "value", value)
    if isinstance(value, torch.Tensor):
        return _into("all_gather", output, _gathered(value, dim, group))
    return _into("all_gather", output, [_gathered(tensor, dim, group) for tensor in value])


def reduce_scatter(
    reduce_type: str,
    input: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """Reduce over the replicas, then give each its part along `scatter_dim`; in `output` if that is
    given."""
    del pin_layout, channel_id, use_global_device_ids
    op = _reduction("reduce_scatter", reduce_type)
    group = own_group("reduce_scatter", groups)
    check_shares("reduce_scatter: shard_count", shard_count, group)
    check_tensors("reduce_scatter", "input", input)
    if isinstance(input, torch.Tensor):
        part = _reduced_part(input, op, scale, scatter_dim, group)
        return _into("reduce_scatter", output, part)
    parts = [_reduced_part(t, op, scale, scatter_dim, group) for t in input]
    return _into("reduce_scatter", output, parts)


def all_gather_bucketized(
    input_list: Sequence[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """`all_gather` of a list. XLA runs what each needs when it is there, so pieces of
    `bucket_cap_mb` megabytes are accepted and not made."""
    del bucket_cap_mb
    return all_gather(input_list, dim, groups, output, pin_layout, channel_id)


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: Sequence[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """`reduce_scatter` of a list; of `bucket_cap_mb` as for `all_gather_bucketized`."""
    del bucket_cap_mb, use_global_device_ids, channel_id
    return reduce_scatter(
        reduce_type, input_list, scale, scatter_dim, shard_count, groups, output, pin_layout
    )


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Split along one dimension, send a part to each replica, and put what comes behind each other
    along another."""
    del pin_layout
    group = own_group("all_to_all", groups)
    check_shares("all_to_all: split_count", split_count, group)
    check_tensors("all_to_all", "value", value)
    if value.size(split_dimension) % split_count:
        raise ValueError(
            f"all_to_all: dimension {split_dimension}, of size {value.size(split_dimension)}, does "
            f"not divide into {split_count} parts"
        )
    parts = torch.stack(value.chunk(split_count, split_dimension))
    ones = [1] * group.size
    received = functional.all_to_all(parts, ones, ones, group.name)
    return torch.cat(received.unbind(0), concat_dimension)


def collective_permute(value: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
    """The tensor of the replica that `pairs` of (source, target) send here; zeros if none does."""
    size = world.world_size()
    sources = [int(source) for source, _ in pairs]
    targets = [int(target) for _, target in pairs]
    is_known = all(0 <= ordinal < size for ordinal in sources + targets)
    if not is_known or len(set(sources)) < len(pairs) or len(set(targets)) < len(pairs):
        raise ValueError(
            "collective_permute: each replica may be one source and one target; "
            f"{spoken_replicas()}, got {pairs}"
        )
    check_tensors("collective_permute", "value", value)
    name = meetings.whole_group().name
    result: torch.Tensor = torch.ops.xla.collective_permute(value, sources, targets, name)
    return result


def collective_broadcast(
    tensors: Sequence[torch.Tensor],
    root_ordinal: int = 0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> None:
    """Replace the tensors, in place, by those of one replica of the group."""
    del pin_layout
    tensors, group = list(tensors), own_group("collective_broadcast", groups)
    if root_ordinal not in group.members:
        raise ValueError(
            f"collective_broadcast: there is no replica {root_ordinal} in the group, which has "
            f"{', '.join(map(str, group.members))}"
        )
    check_tensors("collective_broadcast", "tensors", tensors)
    with torch.no_grad():
        for tensor in tensors:
            functional.broadcast_(tensor, group.members.index(root_ordinal), group.name)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Replace a model's parameters and buffers by those of the first replica."""
    collective_broadcast([*model.parameters(), *model.buffers()])


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Wait until `replicas`, or all, are here; returns their payloads, in order.

    Raises:
        ValueError: `replicas` are not some of those that there are, this one among them.
        TimeoutError: some have not come in time; they are named.
    """
    members = sorted(set(replicas)) or range(world.world_size())
    check_members("rendezvous: replicas", members)
    if world.global_ordinal() not in members:
        raise ValueError(
            f"rendezvous: replica {world.global_ordinal()} is here, and is none of {members}"
        )
    return meetings.gather(f"rendezvous {tag}", bytes(payload), members)


def xla_rendezvous(
    payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """Wait until `ordinals`, or all replicas, are here; returns their payloads."""
    return rendezvous(tag or "", payload, ordinals or ())


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """`reduce_fn` of the list of what all replicas have as `data`, which travels pickled."""
    return reduce_fn([pickle.loads(item) for item in rendezvous(tag, pickle.dumps(_on_cpu(data)))])


def _on_cpu(data: Any) -> Any:
    return _nested.replace(data, _saving.is_ours, _XLAC._to_cpu)


def do_on_ordinals(
    target: Callable[..., Any], data: Sequence[Any] = (), ordinals: Sequence[int] = (0,)
) -> None:
    """Call `target(*data)` in the replicas `ordinals`, tensors being moved to the CPU; all wait."""
    if world.world_size() > 1:
        check_members("do_on_ordinals: ordinals", ordinals)
    if world.global_ordinal() in ordinals:
        target(*_on_cpu(tuple(data)))
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")


class CoalescingBuckets:
    """Collects tensors, and calls `func` for as many at a time as have `bucket_cap_mb` megabytes.

    Args:
        func: takes a list of tensors, and the list for its results if there is one.
        input_list: the tensors.
        output_list: tensors for the results.
        bucket_cap_mb: how much is collected.
        groups: the replicas.
    """

    def __init__(
        self,
        func: Callable[..., list[torch.Tensor]],
        input_list: Sequence[torch.Tensor],
        output_list: Sequence[torch.Tensor] | None = None,
        bucket_cap_mb: int = 160,
        groups: Groups = None,
    ) -> None:
        own_group("CoalescingBuckets", groups)  # raises if they are none
        self._func = func
        self._inputs = list(input_list)
        self._outputs = list(output_list) if output_list is not None else None
        self._limit = bucket_cap_mb * 1024 * 1024
        self._bucket: list[torch.Tensor] = []
        self._bucket_outputs: list[torch.Tensor] = []
        self._size = 0
        self._results: list[torch.Tensor] = []

    def __call__(self) -> list[torch.Tensor]:
        """The results, in the order of the tensors."""
        for i, tensor in enumerate(self._inputs):
            self.add(tensor, i)
        self.flush()
        results, self._results = self._results, []
        return results

    def add(self, tensor: torch.Tensor, idx: int) -> None:
        """Put a tensor, the `idx`-th, into the bucket, which is handed over first if it is full."""
        if self._bucket and self._size + tensor.nbytes > self._limit:
            self.flush()
        self._bucket.append(tensor)
        self._size += tensor.nbytes
        if self._outputs is not None:
            self._bucket_outputs.append(self._outputs[idx])

    def flush(self) -> None:
        """Hand what is in the bucket to `func`."""
        if self._bucket:
            outputs = [] if self._outputs is None else [self._bucket_outputs]
            self._results += self._func(self._bucket, *outputs)
        self._bucket, self._bucket_outputs, self._size = [], [], 0
