"""`torch.xla`: what PyTorch and programs ask of any device through `torch.<device type>`.

Activation checkpointing, `torch.random.fork_rng`, DTensor and loaders of checkpoints look here.
Only the functions that need the device create the client.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Iterable

import torch

from torch_xla import _XLAC, _devices, _memory
from torch_xla._devices import DeviceLike
from torch_xla._torch.streams import (
    Event as Event,
    Stream as Stream,
    current_stream as current_stream,
    default_stream as default_stream,
    set_stream as set_stream,
    stream as stream,
)


class _Thread(threading.local):
    chose_its_device = False


_thread = _Thread()
_forked_after_use = False


def _note_fork() -> None:
    global _forked_after_use
    _forked_after_use = _XLAC._xla_runtime_is_initialized()


os.register_at_fork(after_in_child=_note_fork)


def _is_in_bad_fork() -> bool:
    return _forked_after_use


def init() -> None:
    """Create the client now rather than at the first use."""
    _XLAC._device_count()


def is_initialized() -> bool:
    """Whether the client exists."""
    return _XLAC._xla_runtime_is_initialized()


def is_available() -> bool:
    """Whether there is a plugin to use. Loads none."""
    if is_initialized():
        return True
    from torch_xla import _plugins

    try:
        _plugins.resolve()
    except RuntimeError:
        return False
    return True


def device_count() -> int:
    """How many xla devices this process has."""
    return _XLAC._device_count()


def current_device() -> int:
    """The N of the `xla:N` that `xla` stands for in this thread."""
    return _XLAC._current_device()


def set_device(device: DeviceLike) -> None:
    """Choose the device that `xla` stands for in this thread. Negative numbers do nothing.

    Raises:
        RuntimeError: there is no such device.
    """
    index = _devices.index_of(device)
    if index >= 0:
        _XLAC._device_name(index)
        _XLAC._set_current_device(index)
        _thread.chose_its_device = True


class device:  # noqa: N801 (as in torch.cuda)
    """A context in which `xla` stands for another device. None and negative numbers do nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self._index = -1 if device is None else _devices.index_of(device)
        self._previous = (-1, False)

    def __enter__(self) -> None:
        self._previous = current_device(), _thread.chose_its_device
        set_device(self._index)

    def __exit__(self, *exception: object) -> None:
        index, _thread.chose_its_device = self._previous
        _XLAC._set_current_device(index)


class device_of(device):  # noqa: N801 (as in torch.cuda)
    """A context in which `xla` stands for the device of `tensor`, if it is on one."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "xla" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Launch what was recorded on the device, and return when its values are there."""
    _XLAC._sync(_devices.index_of(device), True, "torch.xla.synchronize()")


def get_device_name(device: DeviceLike = None) -> str:
    """What the hardware calls itself: "cpu", "NVIDIA H100"."""
    return _XLAC._device_kind(_devices.index_of(device))


def get_device_properties(device: DeviceLike = None) -> types.SimpleNamespace:
    """`name`, `total_memory` in bytes, and what else the plugin says of the device."""
    index = _devices.index_of(device)
    attributes = dict(_XLAC._device_attributes(index))
    attributes |= {
        "name": _XLAC._device_kind(index),
        "total_memory": _memory.info(index)["bytes_limit"],
    }
    return types.SimpleNamespace(**attributes)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: XLA compiles bfloat16 for every device, if need be by way of float32."""
    del including_emulation
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that autocast may use."""
    return [torch.bfloat16, torch.float16]


def _generators() -> tuple[torch.Generator, ...]:
    """Of all devices there may be; before the first use that is known by its upper bound alone."""
    return tuple(_XLAC._default_generator(i) for i in range(_XLAC._device_count_upper_bound()))


def manual_seed(seed: int) -> None:
    """Seed the random generator of the current device. Makes no client."""
    _devices.generator_of(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the random generators of all devices. Makes no client."""
    for generator in _generators():
        generator.manual_seed(int(seed))


def _seed_with_torch(seed: int) -> None:
    """What `torch.manual_seed` does to xla devices: it seeds all of them, as for other kinds of
    devices. But a thread that was started and then chose its device is a replica, or stands for
    one: it seeds that device alone, and leaves those of its peers to them. Makes no client."""
    is_main = threading.current_thread() is threading.main_thread()
    if _thread.chose_its_device and not is_main:
        manual_seed(seed)
    else:
        manual_seed_all(seed)


def seed() -> None:
    """Seed the random generator of the current device from the system's entropy."""
    _devices.generator_of(None).seed()


def seed_all() -> None:
    """Seed the random generators of all devices from the system's entropy, all alike."""
    generators = _generators()
    drawn = generators[0].seed()
    for generator in generators[1:]:
        generator.manual_seed(drawn)


def initial_seed() -> int:
    """The seed of the current device's random generator."""
    return _devices.generator_of(None).initial_seed()


def get_rng_state(device: DeviceLike = "xla") -> torch.Tensor:
    """The state of a device's random generator. Runs nothing."""
    return _devices.generator_of(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "xla") -> None:
    """Set what `get_rng_state` returned."""
    _devices.generator_of(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' random generators."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set what `get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """What the plugin counts of the device's memory, in bytes; empty if it does not."""
    return _XLAC._memory_stats(_devices.index_of(device))


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in use; on a CPU device those of this process."""
    return _memory.info(device)["bytes_used"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that were in use; on a CPU device those of this process."""
    return _memory.info(device)["peak_bytes_used"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the plugin keeps for itself, in use or not."""
    stats = memory_stats(device)
    return stats.get("pool_bytes") or stats.get("bytes_reserved") or memory_allocated(device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that the plugin kept for itself."""
    stats = memory_stats(device)
    peak = stats.get("peak_pool_bytes") or stats.get("peak_bytes_reserved")
    return peak or max_memory_allocated(device)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Bytes that are free, and that there are."""
    info = _memory.info(device)
    return info["bytes_limit"] - info["bytes_used"], info["bytes_limit"]


def empty_cache() -> None:
    """Nothing: the plugin has its own ways to give memory back."""


class _Module(types.ModuleType):
    """Gives the attributes that change while the process runs."""

    @property
    def _initialized(self) -> bool:
        return is_initialized()

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        return _generators()


sys.modules[__name__].__class__ = _Module


def __dir__() -> list[str]:
    return [*(name for name in globals() if not name.startswith("_")), "default_generators"]
