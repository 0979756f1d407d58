"""PyTorch's functional collectives, with their results waited for: of tensors on the device that is
nothing, since reads wait; CPU tensors, as those of pickled objects, are there when these return."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_xla import _XLAC, _barriers
from torch_xla._replicas import meetings

_OPS = torch.ops._c10d_functional
# In the place of a member, with a channel as the tag: whoever is at its other end.
OF_CHANNEL = -1


def _name_for(tensor: Tensor, group: str) -> str:
    if tensor.device.type == "xla":
        return group
    meetings.launch_recorded()
    return meetings.for_cpu_tensors(group)


def _call(op: Any, given: Any, *args: Any) -> Any:
    """The results of the operator, whose last argument is the group's name."""
    first = given if isinstance(given, Tensor) else given[0]
    result = op(given, *args[:-1], _name_for(first, args[-1]))
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


def broadcast_(tensor: Tensor, root: int, group: str) -> None:
    """Replace the tensor by that of the member `root`."""
    _call(_OPS.broadcast_, tensor, root, group)


@functools.cache
def _finish_at_exit() -> None:
    """What was sent arrives, though its sender ends first."""

    def finish() -> None:
        _barriers.wait_device_ops()
        _XLAC._finish_sends()

    atexit.register(finish)


def send(tensor: Tensor, dst: int, tag: int, group: str) -> None:
    """Give the tensor to the member `dst`, when the program runs. Nobody waits for it."""
    _finish_at_exit()
    torch.ops.xla.send(tensor, dst, tag, _name_for(tensor, group))


def recv(like: Tensor, src: int, tag: int, group: str) -> Tensor:
    """A tensor like this from the member `src`: what it sent first with this tag."""
    result: Tensor = torch.ops.xla.recv(like, src, tag, _name_for(like, group))
    return result


def find_sender(like: Tensor, tag: int, group: str) -> int:
    """The member whose message with this tag comes first; `recv` from there takes it next."""
    return int(torch.ops.xla.find_sender(like, tag, _name_for(like, group)).item())
