"""Starting replicas, under the names that a few programs import."""

from __future__ import annotations

import functools
import os
import pathlib
import pickle
import tempfile
from collections.abc import Callable
from typing import Any

from torch_xla import _other_names
from torch_xla._replicas import launch, world


def spawn(
    fn: Callable[..., Any],
    nprocs: int | None = None,
    start_method: str = "spawn",
    args: tuple[Any, ...] = (),
) -> None:
    """Call `fn(index, *args)` in each replica; `xmp.spawn` with its arguments in another order."""
    launch.spawn(fn, args, nprocs, start_method=start_method)


def run_multiprocess(
    fn: Callable[..., Any], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, Any]:
    """Call `fn(*args, **kwargs)` in each replica, and return what each returned by its ordinal.

    Args:
        fn: a function of a module where processes are started, as are its results' classes.
        start_method: how processes are started: "spawn", "fork" or "forkserver".

    Raises:
        RuntimeError: under torchrun, where no process sees the others' results.
    """
    if world.world_size() > 1:
        raise RuntimeError("run_multiprocess: the replicas are there already; call fn, and xm's "
                           "collectives for what the others found")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        launch.spawn(
            functools.partial(_keep_result, folder, fn, args, kwargs), start_method=start_method
        )
        return {
            int(file.name): pickle.loads(file.read_bytes())
            for file in sorted(pathlib.Path(folder).iterdir(), key=lambda file: int(file.name))
        }


def _keep_result(folder: str, fn: Callable[..., Any], args: Any, kwargs: Any, index: int) -> None:
    result = pickle.dumps(fn(*args, **kwargs))
    pathlib.Path(os.path.join(folder, str(index))).write_bytes(result)


__getattr__ = _other_names.refusing(__name__)
