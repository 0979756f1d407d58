"""The names at the top of the package: devices, barriers, seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_xla import _XLAC, _devices, _submodules
from torch_xla._barriers import step as step, sync as sync
from torch_xla._devices import DeviceLike

if TYPE_CHECKING:
    from torch_xla._compile import (
        compile as compile,
        set_custom_compile_options as set_custom_compile_options,
    )
    from torch_xla._replicas.launch import launch as launch

# Imported when they are asked for.
LATER = {
    "compile": "torch_xla._compile",
    "set_custom_compile_options": "torch_xla._compile",
    "launch": "torch_xla._replicas.launch",
}


def device(index: int | None = None) -> torch.device:
    """The current xla device, or the one with that index.

    Raises:
        RuntimeError: there is no such device, or no plugin for it.
    """
    chosen = _devices.index_of(index)
    _XLAC._device_name(chosen)
    return torch.device("xla", chosen)


def device_count() -> int:
    """How many xla devices this process has."""
    return _XLAC._device_count()


def devices() -> list[torch.device]:
    """The xla devices of this process."""
    return [torch.device("xla", i) for i in range(device_count())]


def real_devices() -> list[str]:
    """The hardware names of the devices, as "CPU:0"."""
    return [_XLAC._device_name(i) for i in range(device_count())]


def manual_seed(seed: int, device: DeviceLike = None) -> None:
    """Seed the random generator of a device, the current one by default. Makes no client."""
    _devices.generator_of(device).manual_seed(int(seed))


__getattr__ = _submodules.taking(__name__, LATER)
