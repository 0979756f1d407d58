"""The names at the top of the package: devices, barriers, seeds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch

from torch_xla import _XLAC


def device(index: int | None = None) -> torch.device:
    """The current xla device, or the one with that index.

    Raises RuntimeError if there is no such device.
    """
    if index is None:
        return torch.device("xla", _XLAC._current_device())
    _XLAC._device_name(index)
    return torch.device("xla", index)


def device_count() -> int:
    """How many xla devices this process has. Creates the client."""
    return _XLAC._device_count()


def devices() -> list[torch.device]:
    """The xla devices of this process."""
    return [torch.device("xla", i) for i in range(device_count())]


def real_devices() -> list[str]:
    """The hardware names of the devices, as "CPU:0"."""
    return [_XLAC._device_name(i) for i in range(device_count())]


def _user_line() -> str:
    """Where the first frame outside of this package is, for error messages."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("torch_xla"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Launch everything that was recorded on the current device.

    Args:
        wait: return when the values are there; by default the work goes on in the background.
        reset_scope: accepted for compatibility; scopes of names end by themselves here.

    Raises RuntimeError if the recorded program cannot be compiled, and with `wait` if it failed.
    """
    del reset_scope
    _XLAC._xla_increment_counter("MarkStep", 1)
    _XLAC._sync(_XLAC._current_device(), wait, _user_line())


@contextlib.contextmanager
def step() -> Iterator[None]:
    """A context in which one step is recorded: a barrier before and one after it."""
    sync()
    try:
        yield
    finally:
        sync()


def manual_seed(seed: int, device: torch.device | str | None = None) -> None:
    """Seed the random generator of a device (the current one by default)."""
    target = torch.device(device) if device is not None else torch.device("xla")
    index = target.index if target.index is not None else _XLAC._current_device()
    _XLAC._default_generator(index).manual_seed(seed)
