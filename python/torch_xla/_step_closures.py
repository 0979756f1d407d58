"""What `xm.add_step_closure` postpones until the next barrier, and runs then, in order: at once, or
in a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from torch_xla import _background

Closure = Callable[[], Any]


class ClosureHandler:
    """Runs functions at once, in the thread that asks."""

    def run(self, closure: Closure) -> None:
        """Run a function."""
        closure()

    def run_all(self, closures: list[Closure]) -> None:
        """Run several, in their order."""
        for closure in closures:
            self.run(closure)


class AsyncClosureHandler(ClosureHandler):
    """Runs functions in one thread. The first failure is raised by the next call of `run` or
    `run_all`; what was queued behind it is dropped.

    Args:
        max_queue_size: `run` waits while that many are queued; 0 for no limit.
    """

    def __init__(self, max_queue_size: int = 100) -> None:
        self._queue: queue.Queue[Callable[[], Any]] = queue.Queue(max_queue_size)
        self._failure: BaseException | None = None  # under _lock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # under _lock
        self._is_ending = False

    def run(self, closure: Closure) -> None:
        """Queue a function."""
        self.raise_failure()
        self.start_event_loop()
        self._queue.put(closure)

    def start_event_loop(self) -> None:
        """Start the thread, if it does not run; `run` does so."""
        with self._lock:
            if self._thread is None:
                self._thread = _background.start("xla-closures", self._work, (), end=self._end)

    def run_all(self, closures: list[Closure]) -> None:
        """Queue several, and wait for all."""
        for closure in closures:
            self.run(closure)
        self.join()

    def join(self) -> None:
        """Wait for all that were queued."""
        self._queue.join()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the first failure, if there was one since the last call."""
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise RuntimeError(f"an asynchronous closure failed: {failure}") from failure

    def _end(self) -> None:
        """What is queued is dropped."""
        self._is_ending = True
        with contextlib.suppress(queue.Full):  # then it is not waiting
            self._queue.put_nowait(lambda: None)

    def _work(self) -> None:
        while not self._is_ending:
            closure = self._queue.get()
            try:
                if self._failure is None and not self._is_ending:
                    closure()
            except BaseException as failure:
                with self._lock:
                    self._failure = failure
            finally:
                # What it holds on to, tensors among it, must not wait for the next closure.
                del closure
                self._queue.task_done()


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
