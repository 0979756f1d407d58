"""What `xm.add_step_closure` postpones until the next barrier, and runs then, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch_xla.utils.closures import AsyncClosureHandler

Closure = Callable[[], Any]


_lock = threading.Lock()
_pending: dict[int, list[tuple[Closure, bool]]] = {}  # by device, under _lock
_worker: AsyncClosureHandler | None = None  # under _lock


def add(device: int, closure: Closure, run_async: bool) -> None:
    with _lock:
        _pending.setdefault(device, []).append((closure, run_async))


def run(device: int) -> None:
    """Run what was added for `device`. Called after its barrier."""
    global _worker
    if _worker is not None:
        _worker.raise_failure()
    if not _pending:
        return
    with _lock:
        closures = _pending.pop(device, [])
        if _worker is None and any(run_async for _, run_async in closures):
            _worker = AsyncClosureHandler(max_queue_size=0)
    for closure, run_async in closures:
        if run_async and _worker is not None:
            _worker.run(closure)
        else:
            closure()


def join() -> None:
    """Wait for the asynchronous ones."""
    if _worker is not None:
        _worker.join()
