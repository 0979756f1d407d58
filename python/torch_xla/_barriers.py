"""Barriers: what was recorded on the current device is launched, and then what waited for that
runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator

from torch_xla import _XLAC, _causes, _devices, _step_closures
from torch_xla._devices import DeviceLike


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


def wait_device_ops(devices: Iterable[DeviceLike] = ()) -> None:
    """Block until the work that was launched on `devices` (all by default) has ended."""
    if not _XLAC._xla_runtime_is_initialized():
        return
    indices = [_devices.index_of(device) for device in devices]
    for index in indices or range(_XLAC._device_count()):
        _XLAC._wait(index)
    _step_closures.join()
