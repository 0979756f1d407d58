"""Whether one device stands for all, and for how many."""

from __future__ import annotations

from torch_xla import _XLAC

_is_spmd = False


def use_spmd(auto: bool = False) -> None:
    """Let one device stand for all, so that tensors are split over them. With one device that is
    the device itself.

    Args:
        auto: let XLA find how tensors are split. On one device there is one way.

    Raises:
        NotImplementedError: there are several devices.
    """
    global _is_spmd
    if _XLAC._device_count() > 1:
        raise NotImplementedError(
            f"use_spmd: SPMD on {_XLAC._device_count()} devices{', automatic' if auto else ''}, is "
            "not supported yet; make one device visible (CPU_NUM_DEVICES=1)"
        )
    _is_spmd = True


def is_spmd() -> bool:
    """Whether `use_spmd` was called."""
    return _is_spmd


def runtime_device_count() -> int:
    """How many devices of this process a mesh is made of. A virtual device counts as those it
    stands for."""
    return _XLAC._device_count()
