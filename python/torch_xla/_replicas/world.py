"""Who we are among how many: what torchrun, `launch` or a cluster's engine told this process by
RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK. Without them it is alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

from torch_xla import _XLAC
from torch_xla._settings import settings


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None


def world_size() -> int:
    """How many replicas take part in the job."""
    return len(_threads) if place_among_threads() is not None else process_count()


def global_ordinal() -> int:
    """The number of this replica among all."""
    place = place_among_threads()
    return process_index() if place is None else place


def local_ordinal() -> int:
    """The number of this replica on its host."""
    place = place_among_threads()
    if place is not None:
        return place
    return _number("LOCAL_RANK", process_index()) if process_count() > 1 else 0


def process_index() -> int:
    """The number of this process among all of the job."""
    return _number("RANK", 0) if process_count() > 1 else 0


def process_count() -> int:
    """How many processes the job has."""
    return _number("WORLD_SIZE", 1) if "RANK" in os.environ else 1


def local_process_count() -> int:
    """How many processes of the job are on this host."""
    return _number("LOCAL_WORLD_SIZE", process_count()) if process_count() > 1 else 1


def host_index() -> int:
    """The number of this host among all of the job."""
    if process_count() == 1:
        return 0
    return _number("GROUP_RANK", process_index() // local_process_count())


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this replica is the first of its host, or with `local=False` the first of all."""
    return (local_ordinal() if local else global_ordinal()) == 0


def get_master_ip() -> str:
    """The address of the first process's host."""
    return os.environ.get("MASTER_ADDR", "localhost")


# The devices of this process that are replicas of their own, which threads speak for; of a device
# its place. A device stays in the company that it was in first, with which it has groups.
_threads: dict[int, int] = {}
_companies: dict[int, tuple[int, ...]] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def as_threads(devices: Sequence[int]) -> Iterator[None]:
    """Each of several devices is a replica: who it is, the thread's current device says.

    Raises:
        RuntimeError: other devices are replicas now, or these were ones in other company.
    """
    if len(devices) == 1:
        yield
        return
    company = tuple(devices)
    with _lock:
        if len(set(company)) < len(company) or world_size() > 1:
            raise RuntimeError(
                f"{company} can't be replicas in threads: each must be another device, in a "
                "process that is no replica and has no others"
            )
        others = {_companies.setdefault(device, company) for device in company} - {company}
        if others:
            raise RuntimeError(
                f"devices {company} can't be replicas of each other: {min(others)} were, in this "
                "order; start another process"
            )
        _threads.update({device: place for place, device in enumerate(company)})
    try:
        yield
    finally:
        _threads.clear()


def place_among_threads() -> int | None:
    """Which of the replicas in threads this is, or None."""
    return _threads.get(_XLAC._current_device()) if _threads else None


def devices_of_threads() -> list[int]:
    """The devices of this process that are replicas in threads now, in order."""
    return list(_threads)


def check_place() -> None:
    """Raises if this process can't meet the others: what they have told it does not fit."""
    size = process_count()
    places = (
        ("RANK", process_index(), "WORLD_SIZE", size),
        (
            *("LOCAL_RANK", local_ordinal()),
            *("LOCAL_WORLD_SIZE", local_process_count()),
        ),
    )
    for name, number, counted, count in places:
        if not 0 <= number < count:
            raise ValueError(f"{name} must be from 0 to {counted} - 1, {count - 1}, got {number}")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if size > 1 and name not in os.environ:
            raise ValueError(f"{name} is not set, though WORLD_SIZE is {size}")


def take_place() -> None:
    """Of several processes each has one device, whatever CPU_NUM_DEVICES says, no number of its
    own in its programs, and those of one host compile a program once."""
    if process_count() > 1:
        settings.cpu_num_devices = 1
    _XLAC._set_is_replica(process_count() > 1)
    _XLAC._share_compilations(local_process_count() > 1)


take_place()
