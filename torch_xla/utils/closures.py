"""Functions that run in a thread of their own, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class AsyncClosureHandler:
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

    def run(self, closure: Callable[[], Any]) -> None:
        """Queue a function."""
        self.raise_failure()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        self._queue.put(closure)

    def run_all(self, closures: list[Callable[[], Any]]) -> None:
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

    def _work(self) -> None:
        while True:
            closure = self._queue.get()
            try:
                if self._failure is None:
                    closure()
            except BaseException as failure:
                with self._lock:
                    self._failure = failure
            finally:
                # What it holds on to, tensors among it, must not wait for the next closure.
                del closure
                self._queue.task_done()
