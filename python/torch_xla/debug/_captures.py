"""Profiles that other processes ask this one for: one at a time, bounded, ended by whoever is in
charge of it."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable

MAX_DURATION_MS = 600_000
# Of the host, some 200 bytes each while recorded, the first ones; a few times that while they are
# written.
MAX_EVENTS = 250_000
# How often a capture looks whether its client is still there.
_INTERVAL_S = 0.1


def checked_port(port: int) -> int:
    number = operator.index(port)
    if not 0 <= number <= 65535:
        raise ValueError(f"start_server: port must be from 0 to 65535, got {number}")
    return number


def check_duration(duration_ms: object) -> int:
    if not isinstance(duration_ms, int) or not 0 < duration_ms <= MAX_DURATION_MS:
        raise ValueError(f"duration_ms must be from 1 to {MAX_DURATION_MS}, got {duration_ms}")
    return duration_ms


class Captures:
    """Takes profiles for a server's clients.

    Args:
        begin: starts to record so many events at most; RuntimeError if the program is taking a
            profile of its own.
        finish: ends it and returns the XSpace.
        discard: ends it and returns nothing.
    """

    def __init__(
        self,
        begin: Callable[[int], None],
        finish: Callable[[], bytes],
        discard: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._discard = discard
        self._changed = threading.Condition()
        # All below are under it.
        self._is_stopping = False
        self._ends_at: float | None = None  # of the capture that is being taken

    def take(self, duration_ms: int, is_gone: Callable[[], bool]) -> bytes:
        """The XSpace of the next milliseconds.

        Args:
            is_gone: whether the client no longer waits for it.

        Raises:
            ValueError: the duration is out of its bounds.
            RuntimeError: another capture is being taken, or this one was ended.
        """
        seconds = check_duration(duration_ms) / 1000
        with self._changed:
            if self._is_stopping:
                raise RuntimeError("the profiler's server was stopped")
            if self._ends_at is not None:
                left = max(self._ends_at - time.monotonic(), 0)
                raise RuntimeError(
                    f"another profile of this process is being taken, for {left:.1f} more seconds "
                    "at most; ask again then"
                )
            self._begin(MAX_EVENTS)
            self._ends_at = time.monotonic() + seconds
        try:
            problem = self._wait(is_gone)
            if problem:
                self._discard()
                raise RuntimeError(problem)
            return self._finish()
        finally:
            with self._changed:
                self._ends_at = None
                self._changed.notify_all()

    def _wait(self, is_gone: Callable[[], bool]) -> str:
        """Returns at the end of the capture; why it ended before its time, if it did."""
        while True:
            with self._changed:
                assert self._ends_at is not None
                left = self._ends_at - time.monotonic()
                if self._is_stopping:
                    return "the profiler's server was stopped while the profile was taken"
                if left <= 0:
                    return ""
                self._changed.wait(min(left, _INTERVAL_S))
            if is_gone():
                return "the client that asked for the profile is gone"

    def stop(self) -> None:
        """Ends the capture that is being taken, waits for its end, and refuses further ones."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ends_at is None)
