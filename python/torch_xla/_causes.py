"""Why something runs, in words for `PT_XLA_DEBUG`: the loader, `torch_xla.compile` and others say
it around their barriers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_xla import _XLAC


@contextlib.contextmanager
def because(cause: str) -> Iterator[None]:
    """What this thread runs in the body, it runs for that reason. The innermost one holds."""
    before = _XLAC._set_cause(cause)
    try:
        yield
    finally:
        _XLAC._set_cause(before)
