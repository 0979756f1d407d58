"""The functions that programs import as `xr`: which plugin, how many devices, processes, replicas.

A process is one replica of a job, with one device; alone, it has all devices of its plugin.
"""

from __future__ import annotations

import os
from typing import Any

import torch

import torch_xla.torch_xla as _top
from torch_xla import _XLAC, _devices, _plugins
from torch_xla._devices import DeviceLike
from torch_xla._replicas.world import (
    get_master_ip as get_master_ip,
    global_ordinal as global_ordinal,
    host_index as host_index,
    local_ordinal as local_ordinal,
    local_process_count as local_process_count,
    process_count as process_count,
    process_index as process_index,
    world_size as world_size,
)
from torch_xla._settings import settings
from torch_xla._spmd import mode
from torch_xla._spmd.mode import is_spmd as is_spmd


def set_device_type(pjrt_device: str) -> None:
    """Choose the kind of device ("CPU", "CUDA", "TPU"), here and in processes started from here.

    Raises:
        RuntimeError: a device of another kind is in use already.
    """
    if not isinstance(pjrt_device, str):
        raise TypeError(f"set_device_type: expected the name of a device, got {pjrt_device!r}")
    if _XLAC._xla_runtime_is_initialized() and _XLAC._device_type() != pjrt_device.upper():
        raise RuntimeError(
            f"set_device_type({pjrt_device!r}): the {_XLAC._device_type()} device is in use "
            "already; choose before the first use of an xla device"
        )
    os.environ["PJRT_DEVICE"] = pjrt_device
    settings.pjrt_device = pjrt_device


def device_type() -> str:
    """The kind of device: "CPU", "CUDA", "TPU" or the name of a plugin. Loads no plugin, but one
    that only `PJRT_LIBRARY_PATH` names: such a plugin says itself what it is.

    Raises:
        RuntimeError: no installed plugin serves the device that was asked for.
    """
    if _XLAC._xla_runtime_is_initialized():
        return _XLAC._device_type()
    return _plugins.resolve()[0] or _XLAC._device_type()


def using_pjrt() -> bool:
    """True: the runtime before PJRT is long gone."""
    return True


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The device `xla:n`, or the current one. `torch_xla.device` is the newer name.

    Raises:
        RuntimeError: there is no such device, or it is not of the kind `devkind` ("CPU", "CUDA").
    """
    device = _top.device(n)
    if devkind is not None and devkind.upper() != device_type().upper():
        raise RuntimeError(
            f"expected a device of kind {devkind}, but the xla devices are of kind "
            f"{device_type()}; set PJRT_DEVICE={devkind} before the first use"
        )
    return device


def use_spmd(auto: bool = False) -> None:
    """Let one device, `xla:0`, stand for all, so that tensors are split over them: with
    `torch_xla.distributed.spmd.mark_sharding`. With one device that is the device itself. Tensors
    that were made before are copied to all devices; best call it first. There is no way back.

    In a job of several processes it stands for the devices of all, where the plugin's collectives
    cross processes. Each must call it before the first use of the device, and then run the same
    program; a read needs all parts of the tensor on this process's devices.

    Args:
        auto: split tensors of which nothing is said when they come from the host: those of 1,024
            elements or more, over all devices, along the largest of their dimensions that has equal
            parts. That holds for batches and for the parameters of modules that are moved, whose
            gradients and states lie alike. What is made on the device is whole.

    Raises:
        NotImplementedError: there are several processes, and the plugin is the CPU's.
        RuntimeError: there are tensors on other devices than `xla:0`, or one that is still being
            computed; or of several processes this one has used the device.
    """
    from torch_xla._replicas import spanning_client
    from torch_xla._spmd import start
    from torch_xla._torch import annotated_parameters, optimizer_states

    if not isinstance(auto, bool):
        raise TypeError(f"use_spmd: auto must be a bool, got {auto!r}")
    if not is_spmd():
        spanning_client.check_may_span()
    start.use_spmd(auto)
    annotated_parameters.install()
    optimizer_states.install()


def global_device_count() -> int:
    """How many devices all processes have together."""
    return process_count() * _XLAC._device_count()


def global_runtime_device_count() -> int:
    """How many devices a mesh is made of: those of all processes. A virtual device counts as those
    it stands for."""
    return mode.runtime_device_count() if is_spmd() else global_device_count()


def local_device_count() -> int:
    """How many devices the processes on this host have together."""
    return local_process_count() * _XLAC._device_count()


def addressable_device_count() -> int:
    """How many devices this process has."""
    return _XLAC._device_count()


def addressable_runtime_device_count() -> int:
    """As `addressable_device_count`; a virtual device counts as those it stands for."""
    return _XLAC._num_addressable_runtime_devices()


def runtime_device_attributes(device: DeviceLike) -> dict[str, Any]:
    """What the plugin says of a device: coordinates, cores; its hardware name is `name`."""
    # Hardware names ("CPU:0") are taken too.
    if isinstance(device, str) and not device.startswith("xla"):
        names = [_XLAC._device_name(i) for i in range(_XLAC._device_count())]
        if device not in names:
            raise ValueError(f"no device {device!r}, there are {', '.join(names)}")
        device = names.index(device)
    index = _devices.index_of(device)
    return {**_XLAC._device_attributes(index), "name": _XLAC._device_name(index)}


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    """The same for all devices."""
    return [runtime_device_attributes(i) for i in range(_XLAC._device_count())]


def is_bf16_supported() -> bool:
    """True: XLA compiles bfloat16 for every device, if need be by way of float32."""
    return True


def get_num_cached_compilation_graph() -> int:
    """How many executables are kept in memory."""
    return _XLAC._compilation_cache_size()


def clear_computation_cache() -> None:
    """Drop the executables: programs are compiled anew when they are next met."""
    _XLAC._clear_compilation_cache()


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keep compiled programs in a directory, from which later processes take them.

    Several processes may share it. Its programs run in the processes that load them: let nobody
    write to it whom you would not let run code.

    Args:
        path: the directory; made if it does not exist.
        readonly: take programs from it, but write none.

    Raises:
        RuntimeError: a computation has been compiled already.
    """
    _XLAC._initialize_persistent_cache(os.fspath(path), readonly)


def persistent_cache_stats() -> dict[str, Any]:
    """The cache of compiled programs on disk.

    Returns:
        `path` (empty: there is none), `read_only`, `max_bytes` (0: no bound), `entries` and `bytes`
        of all processes' programs, and of this process `hits`, how many of these were `preloaded`
        in the background, and how many `awaited` while another replica compiled them, `misses`,
        and `failures` (programs that could not be loaded).
    """

    def count(name: str) -> int:
        return _XLAC._counter_value(name) or 0

    return {
        **_XLAC._persistent_cache_stats(),
        "hits": count("PersistentCacheHit"),
        "preloaded": count("PersistentCachePreloaded"),
        "awaited": count("PersistentCacheAwaited"),
        "misses": count("PersistentCacheMiss"),
        "failures": count("PersistentCacheDeserializeFailure"),
    }


def clear_persistent_cache() -> None:
    """Remove all programs from the cache on disk, those of other processes too.

    Raises:
        RuntimeError: this process may only read it.
    """
    _XLAC._clear_persistent_cache()
