"""Queues between the threads of a loader, which end without leaving anyone waiting."""

from __future__ import annotations

from typing import Any

from torch_xla._replicas.loader_queue import Queue as Queue, QueueBase as QueueBase


class KeydQueue(QueueBase):
    """Items by key: `get(key)` waits until someone did `put(key, item)`.

    Args:
        maxsize: `put` waits while there are that many items.
    """

    def __init__(self, maxsize: int = 1024) -> None:
        super().__init__(maxsize)
        self._items: dict[Any, Any] = {}  # under _changed

    def put(self, key: Any, item: Any) -> bool:
        """Add an item, when there is room. False, and it is dropped, if the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._maxsize or self._has_ended())
            if self._has_ended():
                return False
            self._items[key] = item
            self._changed.notify_all()
            return True

    def get(self, key: Any) -> Any:
        """Take the item of `key` out, when it is there. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._items or self._has_ended())
            item = self._items.pop(key, None)
            self._changed.notify_all()
            return item

    def _has_ended(self) -> bool:
        return self._is_closed or self._is_closed_for_writing
