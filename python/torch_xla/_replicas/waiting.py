"""How long replicas wait for each other at keys of a store, and how they say for whom."""

from __future__ import annotations

import contextlib
import datetime
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from torch_xla._replicas import world
from torch_xla._settings import settings


def timeout() -> datetime.timedelta:
    """How long a replica waits for the others."""
    return datetime.timedelta(seconds=float(settings.collective_timeout))


def absent(shared: Any, keys: dict[int, str]) -> str:
    """In words, who has not set their keys."""
    try:
        missing = [str(member) for member, key in keys.items() if not shared.check([key])]
    except RuntimeError:
        return f"the job's store, at {world.get_master_ip()}, does not answer"
    # Otherwise the first has collected what they gave, and ended before it said so.
    return f"replica {', '.join(missing) or next(iter(keys))} is not here"


def warn(what: str, shared: Any, keys: dict[int, str], rank: int) -> None:
    """Say for whom this replica has waited for long."""
    warnings.warn(
        f"{what}: after {settings.wait_warning} s {absent(shared, keys)}, and replica {rank} "
        "goes on waiting (XLA_WAIT_WARNING=0 silences this)",
        RuntimeWarning,
        stacklevel=6,
    )


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Say what is waited for in here, a call that can't be asked, if that takes long."""
    patience = float(settings.wait_warning)
    message = f"after {patience:g} s {what} (XLA_WAIT_WARNING=0 silences this)"
    timer = threading.Timer(patience, warnings.warn, (message, RuntimeWarning))
    timer.daemon = True
    if patience > 0:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for(
    what: str, shared: Any, keys: dict[int, str], needed: Sequence[str], rank: int
) -> None:
    """Wait until the needed keys are set, and say for whom if that takes long.

    Raises:
        RuntimeError: they are not set in time.
    """
    limit, patience = timeout(), datetime.timedelta(seconds=float(settings.wait_warning))
    if datetime.timedelta() < patience < limit:
        with contextlib.suppress(RuntimeError):
            shared.wait(needed, patience)
            return
        warn(what, shared, keys, rank)
        limit -= patience
    shared.wait(needed, limit)
