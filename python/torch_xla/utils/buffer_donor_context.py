"""Giving memory away: `_XLAC._set_buffer_donation(tensor, True)` marks a tensor whose memory
programs may reuse, and within this context they do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_xla import _XLAC


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[None]:
    """Barriers in the body put results into the memory of marked tensors of the same type.

    A tensor whose memory was used can't be read any more; nobody but the caller knows that it is
    not needed. (Memory of tensors that the program replaces or drops is reused anyway.)

    Args:
        should_alias: False: they do not.
    """
    before = _XLAC._set_donors_are_used(should_alias)
    try:
        yield
    finally:
        _XLAC._set_donors_are_used(before)
