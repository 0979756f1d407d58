"""The names at the top of the package: devices, barriers, seeds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch

from torch_xla import _XLAC, _causes, _devices, _step_closures
from torch_xla._devices import DeviceLike


def device(index: int | None = None) -> torch.device:
    """The current xla device, or the one with that index.

    Raises:
        RuntimeError: there is no such device, or no plugin for it.
    """
    chosen = _devices.index_of(index)
    _XLAC._device_name(chosen)
    return torch.device("xla", chosen)


def device_count() -> int:
    """How many xla devices this process has."""
    return _XLAC._device_count()


def devices() -> list[torch.device]:
    """The xla devices of this process."""
    return [torch.device("xla", i) for i in range(device_count())]


def real_devices() -> list[str]:
    """The hardware names of the devices, as "CPU:0"."""
    return [_XLAC._device_name(i) for i in range(device_count())]


def _user_line() -> str:
    """Where the first frame outside of this package and torch is, for error messages."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module not in ("torch_xla", "torch", "contextlib"):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Launch everything that was recorded on the current device, then run the step closures.

    Args:
        wait: return when the values are there; by default the work goes on in the background.
        reset_scope: accepted for compatibility; scopes of names end by themselves here.

    Raises:
        RuntimeError: the recorded program can't be compiled, or with `wait`, it failed.
    """
    del reset_scope
    index = _XLAC._current_device()
    _XLAC._xla_increment_counter("MarkStep", 1)
    _XLAC._sync(index, wait, _user_line())
    _step_closures.run(index)


@contextlib.contextmanager
def step() -> Iterator[None]:
    """A context in which one step is recorded: a barrier before and one after it."""
    with _causes.because("beginning of a torch_xla.step"):
        sync()
    try:
        yield
    finally:
        with _causes.because("end of a torch_xla.step"):
            sync()


def manual_seed(seed: int, device: DeviceLike = None) -> None:
    """Seed the random generator of a device, the current one by default. Makes no client."""
    _devices.generator_of(device).manual_seed(int(seed))
