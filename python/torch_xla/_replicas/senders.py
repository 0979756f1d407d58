"""Messages on channels that leave at the call and not in a program: each waits for whoever becomes
the channel's receiver, on a thread of that channel, so that the sender waits for nobody."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_lock = threading.Lock()
_threads: dict[int, ThreadPoolExecutor] = {}  # by channel, under _lock
_sending: list[Future[object]] = []  # under _lock


def begin(channel: int, send: Callable[[], object]) -> None:
    """Call `send` behind what was sent on the channel before."""
    with _lock:
        thread = _threads.setdefault(channel, ThreadPoolExecutor(1, f"channel {channel}"))
        _sending[:] = [*(future for future in _sending if not future.done()), thread.submit(send)]


def finish() -> None:
    """Wait until each message has left, or has found that nobody will take it."""
    with _lock:
        sending = list(_sending)
    for future in sending:
        with contextlib.suppress(RuntimeError):  # of which the sender is warned
            future.result()
