"""How often a piece of a test compiled and ran programs, and what left the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch_xla
from torch_xla.debug import metrics


@dataclass
class Counts:
    compiled: int = 0
    executed: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Counts]:
    """Counts the compiles and executions of its body, and nothing recorded before it."""
    torch_xla.sync(wait=True)
    before = torch_xla._XLAC._computation_stats()
    counts = Counts()
    yield counts
    after = torch_xla._XLAC._computation_stats()
    counts.compiled = after[0] - before[0]
    counts.executed = after[1] - before[1]


def left_the_device() -> set[str]:
    """The operators that ran on the CPU, and the reads, since `metrics.clear_counters()`."""
    return {name for name in metrics.counter_names() if name.startswith("aten::")}
