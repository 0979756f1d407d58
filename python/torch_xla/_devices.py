"""Reads the ways in which users name an xla device."""

from __future__ import annotations

import re

import torch

from torch_xla import _XLAC

# PyTorch's type for the number of a device has eight bits, a sign among them.
_LAST = 127

DeviceLike = torch.device | str | int | None


def index_of(device: DeviceLike) -> int:
    """The N of `xla:N`, of "xla" (the current device), of a number, or of None (the current one).

    Makes no client, so it does not check that the device exists.

    Raises:
        ValueError: it names a device of another type.
        RuntimeError: there can't be a device of that number.
    """
    if isinstance(device, int):
        return _checked(device)
    if device is None:
        return _XLAC._current_device()
    # PyTorch keeps eight bits of what the text says.
    if isinstance(device, str) and (named := re.fullmatch(r"xla:(\d+)", device)):
        return _checked(int(named[1]))
    parsed = torch.device(device)
    if parsed.type != "xla":
        raise ValueError(f"expected an xla device, got {device}")
    index = parsed.index if parsed.index is not None else _XLAC._current_device()
    return _checked(index if index >= 0 else index + 256)


def _checked(index: int) -> int:
    if index > _LAST:
        raise RuntimeError(f"device index {index} does not exist: PyTorch counts to {_LAST}")
    return index


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
