"""Messages that name a channel in the place of a replica: `xm.send` and `xm.recv`. Between
processes they are operators of the program (src/aten/point_to_point.cpp). Replicas in threads hand
values over on the host: a program that waits for a message would hold a thread of the plugin that
the sender's program, on another device of the same plugin, may need."""

from __future__ import annotations

import atexit
import collections
import datetime
import functools
import threading
import warnings

import torch
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._replicas import functional, meetings, waiting, world
from torch_xla._replicas.arguments import check_tensors
from torch_xla._settings import settings


class _HandOver:
    """What replicas of this process have sent and not received, by channel: senders' numbers and
    tensors, in order. A thread that waits holds nothing else."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # The rest under its lock.
        self._sent: dict[int, collections.deque[tuple[int, Tensor]]] = {}
        self._ends: dict[tuple[int, str], int] = {}  # of channels, and who is there
        self._waiting: dict[int, int] = {}  # replicas, and for which channel
        self._ended: set[int] = set()
        self._has_failed = False

    def claim(self, channel_id: int, end: str, replica: int) -> int:
        with self._changed:
            return self._ends.setdefault((channel_id, end), replica)

    def put(self, channel_id: int, sender: int, tensor: Tensor) -> None:
        with self._changed:
            self._sent.setdefault(channel_id, collections.deque()).append((sender, tensor))
            self._changed.notify_all()

    def holds(self, channel_id: int) -> bool:
        with self._changed:
            return bool(self._sent.get(channel_id))

    def take(self, channel_id: int, receiver: int) -> tuple[int, Tensor]:
        """The first that was sent there. Waits for it as long as some replica may send it, and
        XLA_COLLECTIVE_TIMEOUT allows."""
        with self._changed:
            self._waiting[receiver] = channel_id
            self._changed.notify_all()  # perhaps all of them wait now
            try:
                is_decided = self._wait(channel_id, receiver)
            finally:
                del self._waiting[receiver]
            if self._sent.get(channel_id):
                return self._sent[channel_id].popleft()
        raise RuntimeError(
            f"recv: nothing was sent on channel {channel_id}, and nobody will: each other replica "
            "has ended, or waits for a message too, or one has failed"
            if is_decided
            else f"recv: nothing was sent on channel {channel_id} within "
            f"{waiting.timeout().total_seconds():g} s"
        )

    def _wait(self, channel_id: int, receiver: int) -> bool:
        others = set(range(world.world_size())) - {receiver}

        def is_decided() -> bool:
            return bool(self._sent.get(channel_id)) or self._has_failed or others <= self._silent()

        limit = waiting.timeout()
        patience = datetime.timedelta(seconds=float(settings.wait_warning))
        if datetime.timedelta() < patience < limit:
            if self._changed.wait_for(is_decided, patience.total_seconds()):
                return True
            limit -= patience
            warnings.warn(
                f"recv: after {settings.wait_warning} s nothing was sent on channel {channel_id}, "
                f"and replica {receiver} goes on waiting (XLA_WAIT_WARNING=0 silences this)",
                RuntimeWarning,
                stacklevel=5,
            )
        return self._changed.wait_for(is_decided, limit.total_seconds())

    def _silent(self) -> set[int]:
        """Replicas that can't send anything now."""
        waiting = {who for who, channel in self._waiting.items() if not self._sent.get(channel)}
        return self._ended | waiting

    def end(self, replica: int, has_failed: bool) -> None:
        """It will send nothing more. If it has failed, who waits for anybody fails."""
        with self._changed:
            self._ended.add(replica)
            self._has_failed |= has_failed
            self._changed.notify_all()

    def clear(self) -> dict[int, int]:
        """Forget all of it; returns the senders of what nobody has received, by channel."""
        with self._changed:
            lost = {channel: sent[0][0] for channel, sent in self._sent.items() if sent}
            self._sent.clear()
            self._ends.clear()
            self._ended.clear()
            self._has_failed = False
            return lost


_handed_over = _HandOver()
# Which end of a channel a replica of this process is.
_ends: dict[tuple[int, int], str] = {}


def end_thread(has_failed: bool) -> None:
    """The program of this replica, in a thread, has ended."""
    if (place := world.place_among_threads()) is not None:
        _handed_over.end(place, has_failed)


def finish_threads(is_warned_of: bool = True) -> None:
    """The programs of all replicas in threads have ended, or that of a replica that is alone. What
    nobody received is forgotten, and may be warned of."""
    _ends.clear()
    lost = _handed_over.clear()
    for channel_id, sender in lost.items() if is_warned_of else ():
        warnings.warn(
            f"what replica {sender} sent on channel {channel_id} was received by nobody",
            RuntimeWarning,
            stacklevel=2,
        )


@functools.cache
def _finish_at_exit() -> None:
    atexit.register(finish_threads)


def send(value: Tensor, channel_id: int) -> Tensor:
    """Hand the tensor's value to the `recv` of that channel, on another replica. Several tensors on
    one channel come in the order in which they are sent. Recording them waits for nobody; between
    processes the program waits for the first `recv`. What was received by nobody at the end is
    warned of.

    Args:
        value: a tensor of any dtype and shape, which `recv` must expect.
        channel_id: from 0 to 2**28 - 1; each leads from one replica to another one.

    Returns:
        A tensor of that value, for programs that chain their messages.

    Raises:
        ValueError: the channel is none, or the tensor is not on this replica's device.
        RuntimeError: another replica sends there, this one receives there, or a replica that is
            alone has not received what it sent there before.
    """
    check_tensors("send", "value", value)
    sent = value.detach().clone()
    if world.process_count() > 1:
        _join("send", channel_id)
        functional.send(sent, functional.OF_CHANNEL, channel_id, meetings.whole_group())
        return sent
    if world.world_size() > 1:
        _join("send", channel_id)
        _launch()
        _XLAC._materialize([sent])  # a constant too: the receiver can't wait for this device
    elif _handed_over.holds(channel_id):
        raise RuntimeError(f"send: channel {channel_id} holds a value that nobody received")
    else:
        _finish_at_exit()
    _handed_over.put(channel_id, world.global_ordinal(), sent)
    return sent.clone()  # which the caller may write to


def recv(output: Tensor, channel_id: int) -> Tensor:
    """Write what is sent on that channel, and was not received before, into `output`. Replicas in
    threads wait here until it is sent.

    Args:
        output: a tensor of the dtype and shape that is sent.
        channel_id: as of `send`.

    Raises:
        ValueError: the channel is none, or the tensor is not on this replica's device.
        RuntimeError: another replica receives there, this one sends there, or a replica that is
            alone has sent nothing there. When the program runs, or in a thread at once: nothing
            came, or a tensor of another dtype or shape.
    """
    check_tensors("recv", "output", output)
    if world.process_count() > 1:
        _join("recv", channel_id)
        group = meetings.whole_group()
        received = functional.recv(output.detach(), functional.OF_CHANNEL, channel_id, group)
    elif world.world_size() > 1:
        received = _received_in_thread(output, channel_id)
    elif _handed_over.holds(channel_id):
        _, received = _handed_over.take(channel_id, 0)
    else:
        raise RuntimeError(f"recv: nothing was sent on channel {channel_id}")
    with torch.no_grad():
        output.copy_(received)
    functional.compute_apart(output)
    return output


def _received_in_thread(output: Tensor, channel_id: int) -> Tensor:
    _join("recv", channel_id)
    _launch()  # the sender's program may be waiting for an exchange that is recorded here
    sender, received = _handed_over.take(channel_id, world.global_ordinal())
    if (received.dtype, received.shape) != (output.dtype, output.shape):
        raise RuntimeError(
            f"recv: replica {sender} sent {_spoken(received)} on channel {channel_id}, and "
            f"{_spoken(output)} was to be received"
        )
    return received.to(output.device)


def _spoken(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of size {list(tensor.shape)}"


def _launch() -> None:
    _XLAC._sync(_XLAC._current_device(), False, "")


def _join(what: str, channel_id: int) -> None:
    """Say that this replica is that end of the channel, of which each leads from one to another."""
    # As src/ops/collectives.cpp says; the store must not be told of others.
    if not 0 <= channel_id < 1 << 28:
        raise ValueError(f"{what}: channel_id must be from 0 to {(1 << 28) - 1}, got {channel_id}")
    end = "sender" if what == "send" else "receiver"
    replica = world.global_ordinal()
    known = _ends.get((channel_id, replica))
    if known not in (None, end):
        raise RuntimeError(
            f"{what}: replica {replica} is the {known} on channel {channel_id}, and can't be its "
            f"{end} too; a channel leads from one replica to another one"
        )
    if known is None:
        holder = _claim(channel_id, end, replica)
        if holder != replica:
            raise RuntimeError(
                f"{what}: channel {channel_id} has a {end}, replica {holder}, and this is replica "
                f"{replica}; a channel leads from one replica to another one"
            )
        _ends[channel_id, replica] = end


def _claim(channel_id: int, end: str, replica: int) -> int:
    if world.process_count() == 1:
        return _handed_over.claim(channel_id, end, replica)
    # The program of the other end waits for this key (src/aten/point_to_point.cpp), with a member's
    # place in the group of all, which is its number.
    return int(meetings.claim(f"channel {channel_id} {end}", str(replica)))
