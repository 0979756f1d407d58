"""What fills a device's memory, and what the next program will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike


@dataclass(frozen=True)
class Buffer:
    """An array in a device's memory.

    Attributes:
        num_bytes: its size.
        type: its dtype and sizes, as XLA prints them: "f32[2,5]".
        where: the user's line that made it. For the result of a program that is the line of the
            barrier or read, unless `XLA_IR_DEBUG=1` notes the operations' own. Empty: not known.
    """

    num_bytes: int
    type: str
    where: str


def live_buffers(device: DeviceLike = None) -> list[Buffer]:
    """The arrays in the memory of a device, the largest first. Runs nothing."""
    return [Buffer(*row) for row in _XLAC._live_arrays(_devices.index_of(device))]


def estimate(
    tensors: Sequence[torch.Tensor] | None = None, device: DeviceLike = None
) -> dict[str, int]:
    """What the compiler says of a program before it runs, in bytes.

    Args:
        tensors: of the program that computes these; by default of the one that the next barrier
            runs, which is compiled for that.
        device: whose barrier.

    Returns:
        "argument" and "output": inputs and results; "alias": how much of the inputs is reused for
        results; "temp": what it needs while it runs; "generated_code": itself; "peak": the most at
        a time, 0 if the plugin does not say.
    """
    if tensors is not None:
        return _XLAC._estimate_memory(list(tensors))
    return _XLAC._estimate_memory_of_barrier(_devices.index_of(device))
