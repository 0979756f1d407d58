"""What the programs of test_exchanges.py have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import torch_xla
import torch_xla.core.xla_model as xm

Ways = Mapping[str, Callable[[], None]]


def num_gathers(program: str) -> int:
    """How often the program gathers: by calls of the host, or where plugins do, by StableHLO's."""
    calls = program.count('"_c10d_functional:all_gather_into_tensor", "part" = "start"')
    return calls + program.count('"stablehlo.all_gather"(')


def _run(index: int, ways: Ways, names: list[str]) -> None:
    del index
    for name in names:
        ways[name]()
    xm.rendezvous("end")
    xm.master_print("passed", *names)


def launch(ways: Ways) -> None:
    """Call those that the command line names, or all, on every replica."""
    torch_xla.launch(_run, args=(ways, sys.argv[1:] or list(ways)), start_method="fork")
