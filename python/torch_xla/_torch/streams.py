"""Streams and events of `torch.xla`, for programs that are written with them.

A device executes what was recorded in the order in which it was recorded: that is one stream, and
all `Stream` objects of a device stand for it. Waiting for a stream or an event before the next
operation is therefore nothing to do; waiting on the host is `torch.xla.synchronize`.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any

import torch

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike
from torch_xla._wrapping import to_wrap


def _synchronize(device: torch.device, what: str) -> None:
    _XLAC._sync(_devices.index_of(device), True, what)


class Event:
    """A place in the order of a device's work, as `torch.cuda.Event`.

    Args:
        enable_timing: refused if true: what a program takes, `torch_xla.debug.metrics` and the
            profiler know, while the times between operations of one program do not exist.
        blocking, interprocess: without effect, as there is no other way to wait; the latter is
            refused.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if enable_timing or interprocess:
            which = "enable_timing" if enable_timing else "interprocess"
            raise NotImplementedError(f"torch.xla.Event: {which}=True is not supported")
        del blocking
        self._device: torch.device | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Put it behind what was recorded on the device of `stream`, by default the current one."""
        self._device = (stream or current_stream()).device

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing: what is recorded from now on comes later anyhow."""

    def synchronize(self) -> None:
        """Launch what was recorded on the event's device, and return when it has run."""
        if self._device is not None:
            _synchronize(self._device, "torch.xla.Event.synchronize()")

    def query(self) -> bool:
        """True, after `synchronize`: a lazy device would never come to it by itself."""
        self.synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Raises NotImplementedError, see `enable_timing`."""
        raise NotImplementedError(
            "torch.xla.Event.elapsed_time: a program's operations have no times of their own; "
            "see torch_xla.debug.metrics, torch_xla.debug.profiler"
        )


class Stream:
    """The stream of a device, as `torch.cuda.Stream`. Equal for the same device.

    Args:
        device: by default the current one.
        priority: without effect.
    """

    def __init__(self, device: DeviceLike = None, priority: int = 0) -> None:
        self.device = torch.device("xla", _devices.index_of(device))
        self.priority = priority
        # As of a torch.Stream, by which `fully_shard` of PyTorch 2.15 names it.
        self.stream_id = 0
        self.device_index = self.device.index
        self.device_type = torch._C._autograd.DeviceType.XLA.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"<torch.xla.Stream device={self.device}>"

    def wait_event(self, event: Event) -> None:
        """Nothing: there is one order."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing: there is one order."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind what was recorded so far."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Launch what was recorded on the device, and return when it has run."""
        _synchronize(self.device, "torch.xla.Stream.synchronize()")

    def query(self) -> bool:
        """True, after `synchronize`."""
        self.synchronize()
        return True


class stream:  # noqa: N801 (as in torch.cuda)
    """A context of a stream, which changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream of the device, by default of the current one."""
    return Stream(device)


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream of the device, by default of the current one."""
    return Stream(device)


def set_stream(stream: Stream) -> None:
    """Nothing: a device has one."""


def install() -> None:
    """FSDP asks `torch.accelerator`, which knows no device of this kind, for its stream."""
    original = to_wrap(torch.accelerator, "current_stream")

    @functools.wraps(original)
    def stream_of_accelerator(device: Any = None, /) -> Any:
        is_ours = device is None and not torch.accelerator.is_available()
        return current_stream() if is_ours else original(device)

    torch.accelerator.current_stream = stream_of_accelerator
