"""What `xm.add_step_closure` postpones until the next barrier, and runs then, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

Closure = Callable[[], Any]


class _Worker:
    """Runs closures in a thread of its own. The first failure is raised at the next barrier, and
    what was queued behind it is dropped."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Closure] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._idle = threading.Condition()
        self._num_pending = 0
        threading.Thread(target=self._work, name="xla-step-closures", daemon=True).start()

    def add(self, closure: Closure) -> None:
        with self._idle:
            self._num_pending += 1
        self._queue.put(closure)

    def raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise RuntimeError(f"an asynchronous step closure failed: {failure}") from failure

    def join(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._num_pending == 0)

    def _work(self) -> None:
        while True:
            closure = self._queue.get()
            try:
                if self._failure is None:
                    closure()
            except BaseException as failure:
                self._failure = failure
            # What it holds on to, tensors among it, must not wait for the next closure.
            del closure
            with self._idle:
                self._num_pending -= 1
                self._idle.notify_all()


_lock = threading.Lock()
_pending: dict[int, list[tuple[Closure, bool]]] = {}  # by device, under _lock
_worker: _Worker | None = None  # under _lock


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
            _worker = _Worker()
    for closure, run_async in closures:
        if run_async and _worker is not None:
            _worker.add(closure)
        else:
            closure()


def join() -> None:
    """Wait for the asynchronous ones."""
    if _worker is not None:
        _worker.join()
        _worker.raise_failure()
