"""Whether one device stands for all, and for how many."""

from __future__ import annotations

from torch_xla import _XLAC

_is_spmd = False


def use_spmd(auto: bool = False) -> None:
    """Let one device, `xla:0`, stand for all, so that tensors are split over them. With one device
    that is the device itself. Tensors that were made before are copied to all devices; best call it
    first. There is no way back.

    Args:
        auto: let XLA find how tensors are split. On one device there is one way.

    Raises:
        NotImplementedError: `auto`, and there are several devices.
        RuntimeError: there are tensors on other devices than `xla:0`, or one that is still being
            computed.
    """
    global _is_spmd
    if auto and runtime_device_count() > 1:
        raise NotImplementedError(
            f"use_spmd: automatic SPMD on {runtime_device_count()} devices is not supported; "
            "annotate tensors by torch_xla.distributed.spmd.mark_sharding"
        )
    _XLAC._use_spmd()
    _is_spmd = True


def is_spmd() -> bool:
    """Whether `use_spmd` was called."""
    return _is_spmd


def runtime_device_count() -> int:
    """How many devices of this process a mesh is made of. A virtual device counts as those it
    stands for."""
    return _XLAC._num_runtime_devices()
