"""Starting a program on every device, here or where torchrun has started a process for each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.multiprocessing.spawn import start_processes

from torch_xla import _XLAC
from torch_xla._spmd.mode import is_spmd


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
    if is_spmd():
        raise RuntimeError("spawn: under SPMD one process drives all devices; call fn(0) instead")
    if join:
        fn(0, *args)
        return None
    return start_processes(
        fn, args=args, nprocs=1, join=False, daemon=daemon, start_method=start_method
    )


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Call `fn(index, *args)` on every device; under torchrun, which has started a process for
    each, here.

    Args:
        fn: the program.
        args: its arguments after the index.
        start_method: how processes are started: "spawn", "fork" or "forkserver".
        debug_single_process: run on one device, in this process.

    Raises:
        RuntimeError: under SPMD, where one process drives all devices.
        NotImplementedError: there are several devices, or torchrun started several processes.
    """
    if is_spmd():
        raise RuntimeError(
            "launch: under SPMD one process drives all devices; call the function instead"
        )
    if "TORCHELASTIC_RUN_ID" in os.environ:
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        if world_size > 1:
            raise NotImplementedError(
                f"launch: torchrun started {world_size} processes, and replicas in several "
                "processes are not supported yet; use --nproc-per-node=1"
            )
        fn(int(os.environ.get("LOCAL_RANK", "0")), *args)
        return
    nprocs = 1 if debug_single_process else None
    spawn(fn, args=args, nprocs=nprocs, start_method=start_method)
