"""Eager mode: operations run soon after they are recorded, without a barrier."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_xla import _XLAC


def eager_mode(enable: bool) -> None:
    """Run operations as the program goes on, without `torch_xla.sync()`, in all threads; within
    an `eager_mode_context`, until its end and in its thread.

    Operations between which nothing is read are run together, in groups that the operations
    themselves decide, so that a loop finds its programs again. Inside of `torch_xla.compile`
    everything is one program all the same.
    """
    _XLAC._set_eager_mode(enable)


def is_eager_mode() -> bool:
    """Whether eager mode is on in this thread."""
    return _XLAC._is_eager_mode()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[None]:
    """Eager mode on or off for the body, in this thread alone: contexts in several threads, and one
    inside of `torch_xla.compile`, leave the mode of the others as it is."""
    before = _XLAC._set_thread_eager_mode(enable)
    try:
        yield
    finally:
        _XLAC._set_thread_eager_mode(before)
