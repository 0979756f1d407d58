"""A queue between the threads of a loader, which ends without leaving anyone waiting."""

from __future__ import annotations

import collections
import threading
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class QueueBase:
    """What has room for a number of items, and an end.

    Args:
        maxsize: `put` waits while there are that many items.
    """

    def __init__(self, maxsize: int = 1024) -> None:
        if maxsize < 1:
            raise ValueError(f"{type(self).__name__}: maxsize must be positive, got {maxsize}")
        self._maxsize = maxsize
        self._is_closed_for_writing = False  # under _changed
        self._is_closed = False  # under _changed
        self._changed = threading.Condition()

    def max_size(self) -> int:
        """How many items there may be."""
        return self._maxsize

    def close_write(self) -> None:
        """No more items: readers get those that are there, then the end."""
        with self._changed:
            self._is_closed_for_writing = True
            self._changed.notify_all()

    def close(self) -> None:
        """The end for both sides, now."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Queue(QueueBase, Generic[T]):
    """A bounded queue with an end.

    Args:
        maxsize: `put` waits while there are that many items.
    """

    def __init__(self, maxsize: int = 1024) -> None:
        super().__init__(maxsize)
        self._items: collections.deque[T] = collections.deque()  # under _changed

    def put(self, item: T) -> bool:
        """Append an item, when there is room. False, and it is dropped, if the queue was closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._items) < self._maxsize
                    or self._is_closed_for_writing
                    or self._is_closed
                )
            )
            if self._is_closed_for_writing or self._is_closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self, end: Any = None) -> T | Any:
        """The first item, when there is one. `end` at the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._items or self._is_closed_for_writing or self._is_closed
            )
            if self._is_closed or not self._items:
                return end
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """The end for both sides, now."""
        with self._changed:
            self._items.clear()
        super().close()
