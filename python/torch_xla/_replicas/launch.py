"""Starting a program on every device, here or where torchrun has started a process for each."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.multiprocessing.spawn import start_processes

from torch_xla import _XLAC
from torch_xla._replicas import meetings, world
from torch_xla._spmd.mode import is_spmd

_is_launched = False
# Where the store of replicas that are being started is to answer; forked ones inherit it.
_listening: socket.socket | None = None


def _check_not_launched(what: str) -> None:
    if _is_launched:
        raise RuntimeError(f"{what}: this is a replica already, started by launch or spawn")
    if world.place_among_threads() is not None:
        raise RuntimeError(f"{what}: this is a replica already, in a thread of DataParallel")


@contextlib.contextmanager
def _launched(what: str) -> Iterator[None]:
    """Around the program of a replica: it cannot start replicas of its own."""
    global _is_launched
    _check_not_launched(what)
    _is_launched = True
    try:
        yield
    finally:
        _is_launched = False


def _check_may_launch(what: str) -> None:
    if is_spmd():
        raise RuntimeError(f"{what}: under SPMD one process drives all devices; call fn(0) instead")


def _count_devices() -> int:
    """Of the plugin; others than the CPU's are asked in a process of its own, which gives the
    devices back."""
    from torch_xla import _plugins  # seldom needed

    if _XLAC._xla_runtime_is_initialized() or _plugins.resolve()[0] == "CPU":
        return int(_XLAC._device_count_upper_bound())
    program = "import torch_xla; print(torch_xla._XLAC._device_count())"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if asked.returncode:
        raise RuntimeError(f"launch: the devices can't be counted: {asked.stderr[-2000:]}")
    return int(asked.stdout.split()[-1])


def _run_replica(index: int, what: str, fn: Any, args: Any, count: int, port: int) -> None:
    """The life of a process that `_start` has started."""
    if _listening is not None:
        _listening.close()
    os.environ.update(
        RANK=str(index),
        LOCAL_RANK=str(index),
        WORLD_SIZE=str(count),
        LOCAL_WORLD_SIZE=str(count),
        GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        # The parent has the store.
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
    )
    world.take_place()
    with _launched(what):
        fn(index, *args)
        meetings.finish()  # processes that were forked call no handlers at their exit


def _start(
    what: str, fn: Any, args: Any, count: int, join: bool, daemon: bool, start_method: str
) -> Any:
    from torch._C._distributed_c10d import TCPStore

    if _XLAC._xla_runtime_is_initialized():
        raise RuntimeError(
            f"{what}: this process uses an xla device already, which the {count} replicas need; "
            "touch no device before"
        )
    # The store answers in a thread, which may hold a lock of the C library in the moment of a fork:
    # the new process would find it held for ever. So it begins behind the last one.
    global _listening
    with socket.create_server(("127.0.0.1", 0), backlog=count) as _listening:
        port = _listening.getsockname()[1]
        try:
            processes = start_processes(
                _run_replica,
                args=(what, fn, args, count, port),
                nprocs=count,
                join=False,
                daemon=daemon,
                start_method=start_method,
            )
            processes.store = TCPStore(  # lives as long as they do
                "127.0.0.1",
                port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=_listening.detach(),
            )
        finally:
            _listening = None
    if not join:
        return processes
    while not processes.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Call `fn(index, *args)` in each replica: in a process for each device. One replica runs in
    this process, or with `join=False` in one of its own.

    Args:
        fn: the program; a function of a module where processes are started.
        args: its arguments after the index.
        nprocs: 1, or None for as many as there are devices.
        join: return when all have ended.
        daemon: as of `multiprocessing.Process`.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        None, or with `join=False` what `torch.multiprocessing.start_processes` returns.

    Raises:
        RuntimeError: under SPMD, in a replica, or where this process has used a device.
        torch.multiprocessing.ProcessRaisedException: what the first replica that failed raised;
            the others have been ended then.
    """
    if nprocs not in (None, 1):
        raise ValueError(f"spawn: nprocs must be None, which means all devices, or 1; got {nprocs}")
    _check_may_launch("spawn")
    return _spawn("spawn", fn, args, nprocs, join, daemon, start_method)


def _spawn(
    what: str, fn: Any, args: Any, nprocs: int | None, join: bool, daemon: bool, method: str
) -> Any:
    if world.world_size() > 1:  # torchrun has started them
        with _launched(what):
            return fn(world.local_ordinal(), *args)
    count = nprocs or _count_devices()
    if count > 1:
        _check_not_launched(what)
        return _start(what, fn, args, count, join, daemon, method)
    if join:
        fn(0, *args)
        return None
    return start_processes(fn, args=args, nprocs=1, join=False, daemon=daemon, start_method=method)


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Call `fn(index, *args)` on every device, in a process for each; under torchrun, which has
    started them, here.

    Args:
        fn: the program; a function of a module where processes are started.
        args: its arguments after the index.
        start_method: how processes are started: "spawn", "fork" or "forkserver".
        debug_single_process: run on one device, in this process.

    Raises:
        RuntimeError: under SPMD, in a replica, or where this process has used a device.
        torch.multiprocessing.ProcessRaisedException: what the first replica that failed raised;
            the others have been ended then.
    """
    _check_may_launch("launch")
    _spawn("launch", fn, args, 1 if debug_single_process else None, True, False, start_method)
