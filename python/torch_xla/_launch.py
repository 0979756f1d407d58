"""`torch_xla.launch`: a program on every device, started here or by torchrun."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch_xla import runtime


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
    from torch_xla.distributed import xla_multiprocessing as xmp

    if runtime.is_spmd():
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
    xmp.spawn(fn, args=args, nprocs=nprocs, start_method=start_method)
