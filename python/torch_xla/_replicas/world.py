"""Who we are among how many: what torchrun, `launch` or a cluster's engine told this process by
RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK. Without them it is alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

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
    return _number("WORLD_SIZE", 1) if "RANK" in os.environ else 1


def global_ordinal() -> int:
    """The number of this replica among all."""
    return _number("RANK", 0) if world_size() > 1 else 0


def local_ordinal() -> int:
    """The number of this replica on its host."""
    return _number("LOCAL_RANK", global_ordinal()) if world_size() > 1 else 0


def process_index() -> int:
    """The number of this process among all of the job."""
    return global_ordinal()


def process_count() -> int:
    """How many processes the job has."""
    return world_size()


def local_process_count() -> int:
    """How many processes of the job are on this host."""
    return _number("LOCAL_WORLD_SIZE", world_size()) if world_size() > 1 else 1


def host_index() -> int:
    """The number of this host among all of the job."""
    if world_size() == 1:
        return 0
    return _number("GROUP_RANK", global_ordinal() // local_process_count())


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this replica is the first of its host, or with `local=False` the first of all."""
    return (local_ordinal() if local else global_ordinal()) == 0


def get_master_ip() -> str:
    """The address of the first process's host."""
    return os.environ.get("MASTER_ADDR", "localhost")


class _Thread(threading.local):
    replicas = 1


_thread = _Thread()


@contextlib.contextmanager
def as_thread(count: int) -> Iterator[None]:
    """This thread is one of so many replicas of one process."""
    before, _thread.replicas = _thread.replicas, count
    try:
        yield
    finally:
        _thread.replicas = before


def check_alone_in_process(what: str) -> None:
    """Raises if other threads of this process are replicas beside this one."""
    if _thread.replicas > 1:
        raise NotImplementedError(
            f"{what}: replicas in threads of one process can't exchange anything yet; start a "
            "process for each device, with torch_xla.launch"
        )


def check_place() -> None:
    """Raises if this process can't meet the others: what they have told it does not fit."""
    size, rank = world_size(), global_ordinal()
    if not 0 <= rank < size:
        raise ValueError(f"RANK must be from 0 to WORLD_SIZE - 1, {size - 1}, got {rank}")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if size > 1 and name not in os.environ:
            raise ValueError(f"{name} is not set, though WORLD_SIZE is {size}")


def take_place() -> None:
    """Of several processes each has one device, whatever CPU_NUM_DEVICES says, and those of one
    host compile a program once."""
    if world_size() > 1:
        settings.cpu_num_devices = 1
    _XLAC._share_compilations(local_process_count() > 1)


take_place()
