"""Reads the ways in which users name an xla device."""

from __future__ import annotations

import torch

from torch_xla import _XLAC

DeviceLike = torch.device | str | int | None


def index_of(device: DeviceLike) -> int:
    """The N of `xla:N`, of "xla" (the current device), of a number, or of None (the current one).

    Makes no client, so it does not check that the device exists.

    Raises:
        ValueError: it names a device of another type.
    """
    if device is None:
        return _XLAC._current_device()
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != "xla":
        raise ValueError(f"expected an xla device, got {device}")
    return parsed.index if parsed.index is not None else _XLAC._current_device()


def generator_of(device: DeviceLike) -> torch.Generator:
    """The default random generator of a device. Makes no client.

    Raises:
        RuntimeError: there can't be such a device.
    """
    index = index_of(device)
    bound = _XLAC._device_count_upper_bound()
    if not 0 <= index < bound:
        raise RuntimeError(f"device index {index} does not exist, there are {bound} xla devices")
    return _XLAC._default_generator(index)
