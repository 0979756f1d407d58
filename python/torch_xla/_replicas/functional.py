"""PyTorch's functional collectives, with their results waited for: of tensors on the device that is
nothing, since reads wait; CPU tensors, as those of pickled objects, are there when these return.
Tensors of other devices, or of several in one call, are errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._replicas import meetings, senders
from torch_xla._replicas.meetings import Group

_OPS = torch.ops._c10d_functional
# In the place of a member, with a channel as the tag: whoever is at its other end.
OF_CHANNEL = -1
# Tags of CPU tensors are above those of the program's messages (src/aten/point_to_point.cpp).
_NUM_TAGS = 1 << 28
_FIRST_CPU_TAG = 2 * _NUM_TAGS


def _is_on_cpu(what: str, given: Sequence[Tensor]) -> bool:
    devices = sorted({tensor.device.type for tensor in given})
    if devices not in (["cpu"], ["xla"]):
        raise ValueError(
            f"{what}: all tensors of a call must be on the device xla, or all on the CPU, got "
            f"tensors on {' and '.join(devices)}"
        )
    return devices == ["cpu"]


def _call(op: Any, given: Any, *args: Any) -> Any:
    """The results of the operator, whose last argument is the group's name."""
    *between, group = args
    if _is_on_cpu(op.__name__, [given] if isinstance(given, Tensor) else given):
        meetings.launch_recorded()
        group = meetings.for_cpu_tensors(group)
    result = op(given, *between, group)
    if isinstance(result, Tensor):
        return _OPS.wait_tensor(result)
    return [_OPS.wait_tensor(tensor) for tensor in result]


def all_reduce(tensor: Tensor, op: str, group: str) -> Tensor:
    """The reduction of all members' tensors."""
    result: Tensor = _call(_OPS.all_reduce, tensor, op, group)
    return result


def all_reduce_(tensors: Sequence[Tensor], op: str, group: str) -> None:
    """The same in place, of all tensors at once."""
    if tensors:
        _call(_OPS.all_reduce_coalesced_, list(tensors), op, group)


def all_gather(tensor: Tensor, size: int, group: str) -> Tensor:
    """All members' tensors, stacked: [size, ...]."""
    result: Tensor = _call(_OPS.all_gather_into_tensor, tensor.unsqueeze(0), size, group)
    return result


def reduce_scatter(tensor: Tensor, op: str, size: int, group: str) -> Tensor:
    """This member's part, along the first dimension, of the reduction."""
    result: Tensor = _call(_OPS.reduce_scatter_tensor, tensor, op, size, group)
    return result


def all_gather_rows(tensors: Sequence[Tensor], size: int, group: str) -> list[Tensor]:
    """Of each tensor all members' rows, in order; those of one dtype travel together."""
    if not tensors:
        return []
    gathered: list[Tensor] = _call(
        _OPS.all_gather_into_tensor_coalesced, list(tensors), size, group
    )
    return gathered


def reduce_scatter_rows(tensors: Sequence[Tensor], op: str, size: int, group: str) -> list[Tensor]:
    """Of each tensor this member's rows of the reduction; those of one dtype travel together."""
    if not tensors:
        return []
    parts: list[Tensor] = _call(
        _OPS.reduce_scatter_tensor_coalesced, list(tensors), op, size, group
    )
    return parts


def all_to_all(
    tensor: Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], group: str
) -> Tensor:
    """What all members send here, along the first dimension, of which each gets so many rows."""
    result: Tensor = _call(
        _OPS.all_to_all_single, tensor, list(output_sizes), list(input_sizes), group
    )
    return result


def all_to_all_of_own_sizes(
    tensor: Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], group: str
) -> Tensor:
    """The same, by the host where a plugin's collectives have parts of one size alone: what sizes
    the others give this member can't know."""
    if not _goes_by_host(tensor):
        return all_to_all(tensor, output_sizes, input_sizes, group)
    received = all_to_all(tensor.cpu(), output_sizes, input_sizes, group).to(tensor.device)
    compute_apart(received)
    return received


def broadcast_(tensor: Tensor, root: int, group: str) -> None:
    """Replace the tensor by that of the member `root`."""
    _call(_OPS.broadcast_, tensor, root, group)


def _goes_by_host(tensor: Tensor) -> bool:
    """Whether a message of the device goes by the host, at the call: where programs exchange by
    the plugin's collectives, of which all members are part."""
    return tensor.device.type == "xla" and _XLAC._spans_processes()


def compute_apart(received: Tensor) -> None:
    """So that a message is no part of the next program, where all replicas must run that."""
    if received.device.type == "xla" and _XLAC._replicas_run_one_program():
        _XLAC._materialize([received])


def _message(what: str, tensor: Tensor, peer: int, tag: int, group: Group) -> int:
    """The tag with which it travels. Two members alone know of a message, so that CPU tensors go
    by the group's own process group, which all have."""
    if not _is_on_cpu(what, [tensor]):
        return tag
    if peer == OF_CHANNEL:
        meetings.launch_recorded()
        meetings.register_again(group.name)
        return tag
    if not 0 <= tag < _NUM_TAGS:
        raise ValueError(f"{what}: tag must be from 0 to {_NUM_TAGS - 1}, got {tag}")
    if not 0 <= peer < group.size:
        raise ValueError(f"{what}: there is no member {peer}, the group has {group.size}")
    if group.size == 1:
        raise ValueError(f"{what}: the group has one member, who can't send to itself")
    meetings.launch_recorded()
    meetings.register_again(group.name)
    return tag + _FIRST_CPU_TAG


def send(tensor: Tensor, dst: int, tag: int, group: Group) -> None:
    """Give the tensor to the member `dst`, when the program runs. Nobody waits for it."""
    if _goes_by_host(tensor):
        tensor = tensor.cpu()
        if dst == OF_CHANNEL:
            meetings.launch_recorded()
            senders.begin(tag, lambda: _send_on_channel(tensor, tag, group))
            return
    torch.ops.xla.send(tensor, dst, _message("send", tensor, dst, tag, group), group.name)


def _send_on_channel(tensor: Tensor, channel: int, group: Group) -> None:
    meetings.register_again(group.name)  # the program may have destroyed its groups since then
    torch.ops.xla.send(tensor, OF_CHANNEL, channel, group.name)


def recv(like: Tensor, src: int, tag: int, group: Group) -> Tensor:
    """A tensor like this from the member `src`: what it sent first with this tag."""
    if _goes_by_host(like):
        empty = torch.zeros(like.shape, dtype=like.dtype)
        return recv(empty, src, tag, group).to(like.device)
    tag = _message("recv", like, src, tag, group)
    result: Tensor = torch.ops.xla.recv(like, src, tag, group.name)
    return result


def find_sender(like: Tensor, tag: int, group: Group) -> int:
    """The member whose message with this tag comes first; `recv` from there takes it next."""
    if _goes_by_host(like):
        like = torch.zeros(0)
    tag = _message("recv", like, 0, tag, group)
    return int(torch.ops.xla.find_sender(like, tag, group.name).item())
