"""Whether one device stands for all, and for how many."""

from __future__ import annotations

from torch_xla import _XLAC


def is_spmd() -> bool:
    """Whether `use_spmd` was called."""
    return _XLAC._is_spmd()


def runtime_device_count() -> int:
    """How many devices a mesh is made of. A virtual device counts as those it stands for, those of
    other processes too."""
    return _XLAC._num_runtime_devices()


def spans_processes() -> bool:
    """Whether some of these are of other processes."""
    return _XLAC._num_addressable_runtime_devices() < _XLAC._num_runtime_devices()
