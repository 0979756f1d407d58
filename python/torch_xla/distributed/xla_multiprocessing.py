"""Starting replicas: the functions that programs import as `xmp`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.multiprocessing.spawn import start_processes

from torch_xla import _XLAC, runtime
from torch_xla._devices import DeviceLike

T = TypeVar("T")


def _check_one_replica(what: str, nprocs: int | None) -> None:
    if nprocs not in (None, 1):
        raise ValueError(
            f"{what}: nprocs must be None, which means all devices, or 1; got {nprocs}"
        )
    if nprocs is None and _XLAC._device_count_upper_bound() > 1 and _XLAC._device_count() > 1:
        raise NotImplementedError(
            f"{what}: there are {_XLAC._device_count()} devices, and replicas on several are not "
            "supported yet; pass nprocs=1, or make one device visible (CPU_NUM_DEVICES=1)"
        )


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Call `fn(index, *args)` in each replica. There is one, with index 0: it runs in this process,
    or with `join=False` in one of its own.

    Args:
        fn: the program.
        args: its arguments after the index.
        nprocs: 1, or None for as many as there are devices.
        join: return when it has ended.
        daemon: as of `multiprocessing.Process`, for a process of its own.
        start_method: "spawn", "fork" or "forkserver", for a process of its own.

    Returns:
        None, or with `join=False` what `torch.multiprocessing.start_processes` returns.
    """
    _check_one_replica("spawn", nprocs)
    if runtime.is_spmd():
        raise RuntimeError("spawn: under SPMD one process drives all devices; call fn(0) instead")
    if join:
        fn(0, *args)
        return None
    return start_processes(
        fn, args=args, nprocs=1, join=False, daemon=daemon, start_method=start_method
    )


class MpModelWrapper:
    """A model made once and moved to the device of each replica.

    Args:
        model: the model, on the CPU.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._lock = threading.Lock()

    def to(self, device: DeviceLike) -> torch.nn.Module:
        """The model on `device`."""
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs a function in one replica after the other, such as one that fills a cache of data."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn()` returns, when it is this replica's turn."""
        with self._lock:
            return fn()


def create_optimized_replica_groups() -> list[list[int]] | None:
    """Groups of replicas that are close to each other on the machine, as `groups=` of the
    collectives takes them. None, which is all in one group: there is one replica."""
    return None
