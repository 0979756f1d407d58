"""Threads of the package that run Python code. A daemon thread that asks for the interpreter's lock
while the interpreter goes down is torn out of whatever it is in, and C++ code, PyTorch's above all,
answers with the end of the process. So they end, and are waited for, before."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

# How long an exit waits for a thread to end by itself, then for the exception that is raised in it
# to come through: a DataLoader looks up every 5 s. What still runs is blocked in a call of the
# user's, which the end of the process does not disturb.
_GRACE_S = 2.0
_PATIENCE_S = 6.0

_lock = threading.Lock()
_running: dict[threading.Thread, Callable[[], None]] = {}  # under _lock


def start(
    name: str, target: Callable[..., None], args: tuple[Any, ...], end: Callable[[], None]
) -> threading.Thread:
    """Run `target(*args)` in a daemon thread.

    Args:
        name: of the thread.
        target: what it does.
        args: for it.
        end: asks it to return soon. Called at exit, on another thread; must not block.
    """

    def run() -> None:
        # Where an exit ended it, nobody is there to be told.
        with contextlib.suppress(_Exit):
            try:
                target(*args)
            finally:
                with _lock:
                    _running.pop(thread, None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    with _lock:
        _running[thread] = end
    try:
        thread.start()
    except BaseException:
        with _lock:
            del _running[thread]
        raise
    return thread


class _Exit(BaseException):
    """Raised in a thread that runs on while the process exits."""


def _join(threads: list[threading.Thread], seconds: float) -> list[threading.Thread]:
    """Those that are still alive then."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in threads if thread.is_alive()]


def _end_all() -> None:
    with _lock:
        running = dict(_running)
    for end in running.values():
        end()
    for thread in (remaining := _join(list(running), _GRACE_S)):
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(_Exit)
            )
    _join(remaining, _PATIENCE_S)


def _forget_all() -> None:
    """In a forked child there are no such threads, and whoever held the lock is not there."""
    global _lock
    _lock = threading.Lock()
    _running.clear()


def install() -> None:
    """End the threads at exit; before the devices are shut down, if called after that was asked
    for."""
    atexit.register(_end_all)
    os.register_at_fork(after_in_child=_forget_all)
