"""Starting replicas: the functions that programs import as `xmp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from torch_xla._devices import DeviceLike
from torch_xla._replicas import meetings
from torch_xla._replicas.groups import (
    create_optimized_replica_groups as create_optimized_replica_groups,
)
from torch_xla._replicas.launch import spawn as spawn

T = TypeVar("T")


class MpModelWrapper:
    """A model made once and moved to the device of each replica.

    Args:
        model: the model, on the CPU.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def to(self, device: DeviceLike) -> torch.nn.Module:
        """The model on `device`."""
        return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one replica after the other, such as one that fills a cache of data."""

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn()` returns, when it is this replica's turn.

        Raises:
            TimeoutError: another has not ended its turn in time; it is named.
        """
        with meetings.turn("MpSerialExecutor"):
            return fn()
