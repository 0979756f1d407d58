"""Which start of the job's processes this is. torchrun starts all of them again when one has
failed, and they meet in the store in which those before them met: addresses, messages and rounds
that lie there are of processes that have ended. No variable numbers the starts alike on all
hosts."""

from __future__ import annotations

import time
import uuid
from typing import Any

from torch_xla._replicas.waiting import absent, timeout, wait_for, warn
from torch_xla._settings import settings

_POLL_S = 0.01
_START = "the start of the job"


def join(shared: Any, rank: int, size: int) -> str:
    """Wait for the processes that were started with this one. All of them must call it.

    Args:
        shared: a store of the job, in which processes that have ended may have met.
        rank: the number of this process.
        size: how many there are.

    Returns:
        A prefix for what they keep in the store, another one in each life of the job.

    Raises:
        TimeoutError: some have not come in time; they are named.
    """
    own = uuid.uuid4().hex
    if rank == 0:
        _gather(shared, own, size)
        return own
    shared.set(f"member {rank}", own)
    try:
        wait_for(_START, shared, {0: f"life of {own}"}, [f"life of {own}"], rank)
    except RuntimeError as error:
        raise _too_late(shared, {0: f"life of {own}"}) from error
    life = str(shared.get(f"life of {own}").decode())
    shared.set(f"{life}: {rank}", "")
    return life


def _gather(shared: Any, life: str, size: int) -> None:
    """Tell everybody who says to be there which life this is, until all others are in it: some of
    those may have ended, and others come in their places."""
    keys = {rank: f"{life}: {rank}" for rank in range(1, size)}
    told: dict[int, bytes] = {}
    start, patience = time.monotonic(), float(settings.wait_warning)
    has_warned = patience <= 0
    while not shared.check(list(keys.values())):
        for rank in keys:
            if shared.check([f"member {rank}"]):
                _tell(shared, shared.get(f"member {rank}"), rank, life, told)
        waited = time.monotonic() - start
        if waited > timeout().total_seconds():
            raise _too_late(shared, keys)
        if waited > patience and not has_warned:
            has_warned = True
            warn(_START, shared, keys, 0)
        time.sleep(_POLL_S)


def _tell(shared: Any, member: bytes, rank: int, life: str, told: dict[int, bytes]) -> None:
    if told.get(rank) != member:
        shared.set(f"life of {member.decode()}", life)
        told[rank] = member


def _too_late(shared: Any, keys: dict[int, str]) -> TimeoutError:
    return TimeoutError(f"{_START}: after {timeout().total_seconds():g} s {absent(shared, keys)}")
