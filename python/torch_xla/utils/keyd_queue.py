"""Queues between the threads of a loader, which end without leaving anyone waiting."""

from __future__ import annotations

import threading
from typing import Any

from torch_xla._replicas.loader_queue import Queue as Queue


class KeydQueue:
    """Items by key: `get(key)` waits until someone did `put(key, item)`.

    Args:
        maxsize: `put` waits while there are that many items.
    """

    def __init__(self, maxsize: int = 1024) -> None:
        self._maxsize = maxsize
        self._items: dict[Any, Any] = {}  # under _changed
        self._is_closed = False  # under _changed
        self._changed = threading.Condition()

    def max_size(self) -> int:
        """How many items there may be."""
        return self._maxsize

    def put(self, key: Any, item: Any) -> bool:
        """Add an item, when there is room. False, and it is dropped, if the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._maxsize or self._is_closed)
            if self._is_closed:
                return False
            self._items[key] = item
            self._changed.notify_all()
            return True

    def get(self, key: Any) -> Any:
        """Take the item of `key` out, when it is there. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._items or self._is_closed)
            item = self._items.pop(key, None)
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """The end for both sides, now."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
