"""The threads of a loader: one runs the user's loader, others upload what it gives."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torch_xla import _background, _nested
from torch_xla._replicas.loader_queue import Queue
from torch_xla._replicas.uploads import send_cpu_data_to_device

# What a queue gives when there is nothing more: None is a batch like any other.
END: Any = object()


class Failure:
    """An exception on its way from a thread to the loop."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class DeviceQueues:
    """What waits for one device: batches of the loader, then batches on the device."""

    def __init__(self, loader_size: int, device_size: int) -> None:
        self.loaded: Queue[Any] = Queue(loader_size)
        self.uploaded: Queue[Any] = Queue(device_size)

    def close(self) -> None:
        self.loaded.close()
        self.uploaded.close()


def close_all(queues: Iterable[DeviceQueues]) -> None:
    for each in queues:
        each.close()


def _batch_size(batch: Any, dim: int) -> int | None:
    """The size of the first tensor of a batch along `dim`."""
    for _, tensor in _nested.walk(batch, lambda value: isinstance(value, torch.Tensor)):
        return int(tensor.shape[dim]) if tensor.dim() > dim else None
    return None


class _Turns:
    """Numbers batches as they are taken, and lets them on in that order."""

    def __init__(self) -> None:
        self._taken = 0
        self._passed = 0
        self._take_lock = threading.Lock()
        self._changed = threading.Condition()

    def take(self, queue: Queue[Any]) -> tuple[int, Any]:
        with self._take_lock:
            item = queue.get(END)
            number = self._taken
            self._taken += 1
            return number, item

    def pass_on(self, number: int, queue: Queue[Any], item: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._passed == number)
        is_open = queue.put(item)
        with self._changed:
            self._passed += 1
            self._changed.notify_all()
        return is_open


class _Remaining:
    """Counts threads down; the last one out closes the door."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()

    def is_last(self) -> bool:
        with self._lock:
            self._count -= 1
            return self._count == 0


def _rounds(loader: Iterable[Any], count: int, limit: tuple[int] | None) -> Iterator[list[Any]]:
    """Batches, `count` at a time; what does not go round is dropped."""
    gathered: list[Any] = []
    size: int | None = None
    for batch in loader:
        if limit is not None:
            found = _batch_size(batch, *limit)
            if size is not None and found != size:
                return
            size = found
        gathered.append(batch)
        if len(gathered) == count:
            yield gathered
            gathered = []


def _load(loader: Iterable[Any], queues: list[DeviceQueues], limit: tuple[int] | None) -> None:
    """Runs the user's loader."""
    try:
        for batches in _rounds(loader, len(queues), limit):
            if not all(q.loaded.put(b) for q, b in zip(queues, batches, strict=True)):
                return
    except BaseException as error:
        for queue in queues:
            queue.loaded.put(Failure(error))
    finally:
        for queue in queues:
            queue.loaded.close_write()


def _upload(
    queues: DeviceQueues,
    device: torch.device,
    input_sharding: Any,
    turns: _Turns,
    remaining: _Remaining,
) -> None:
    """Uploads the batches of one device."""
    while True:
        number, batch = turns.take(queues.loaded)
        if batch is END:
            break
        try:
            if not isinstance(batch, Failure):
                batch = send_cpu_data_to_device([batch], device, input_sharding)[0]
        except BaseException as error:
            batch = Failure(error)
        if not turns.pass_on(number, queues.uploaded, batch):
            break
    if remaining.is_last():
        queues.uploaded.close_write()


def start(
    loader: Iterable[Any],
    queues: dict[torch.device, DeviceQueues],
    limit: tuple[int] | None,
    input_sharding: Any,
    num_uploaders: int,
) -> None:
    """Start the threads, which end when the loader does or the queues are closed. They know the
    queues alone: so a `ParallelLoader` that nobody holds any more ends them.

    Args:
        loader: the user's.
        queues: by device.
        limit: end at the first batch of another size along this dimension.
        input_sharding: as for `send_cpu_data_to_device`.
        num_uploaders: how many threads upload, per device.
    """
    in_order = list(queues.values())
    _background.start("xla-load", _load, (loader, in_order, limit), end=lambda: close_all(in_order))
    for device, of_device in queues.items():
        # Several uploads at a time would come in any order, so a lock gives each its turn.
        turns = _Turns()
        remaining = _Remaining(num_uploaders)
        for _ in range(num_uploaders):
            _background.start(
                "xla-upload",
                _upload,
                (of_device, device, input_sharding, turns, remaining),
                end=of_device.close,
            )
