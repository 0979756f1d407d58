"""Being told when a tensor's value is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_xla import _XLAC, _background


def on_ready_callback(tensor: torch.Tensor, callback: Callable[[], Any]) -> None:
    """Call `callback()` in a thread of its own when the value is there, or never will be. Launches
    what computes it.

    Args:
        tensor: an xla tensor.
        callback: what to call.
    """
    _XLAC._materialize([tensor])
    index = tensor.device.index

    def wait() -> None:
        try:
            _XLAC._wait(index)
        finally:
            callback()

    # An exit waits for the device anyhow, and so does the thread, which nothing else ends.
    _background.start("xla-on-ready", wait, (), end=lambda: None)


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """An event that is set when the value is there."""
    event = threading.Event()
    on_ready_callback(tensor, event.set)
    return event
