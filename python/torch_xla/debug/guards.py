"""Finding reads of tensors by the host, each of which waits for the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_xla._settings import settings

_LEVELS = ("allow", "log", "forbid")


@contextlib.contextmanager
def transfer_guard(level: str) -> Iterator[None]:
    """What happens in the body, in any thread, when the host reads a tensor.

    Args:
        level: "allow"; "log": a line on the standard error stream with the user's line; "forbid":
            the read raises RuntimeError.
    """
    if level not in _LEVELS:
        raise ValueError(f"transfer_guard: must be one of {', '.join(_LEVELS)}, got {level!r}")
    before = settings.transfer_guard
    settings.transfer_guard = level
    try:
        yield
    finally:
        settings.transfer_guard = before
