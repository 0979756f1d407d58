"""Functions that run in a thread of their own, in order."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from torch_xla import _background


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
        self._is_ending = False

    def run(self, closure: Callable[[], Any]) -> None:
        """Queue a function."""
        self.raise_failure()
        with self._lock:
            if self._thread is None:
                self._thread = _background.start("xla-closures", self._work, (), end=self._end)
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
