"""What the programs of test_exchanges.py have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import torch_xla
import torch_xla.core.xla_model as xm

Ways = Mapping[str, Callable[[], None]]


def _run(index: int, ways: Ways, names: list[str]) -> None:
    del index
    for name in names:
        ways[name]()
    xm.rendezvous("end")
    xm.master_print("passed", *names)


def launch(ways: Ways) -> None:
    """Call those that the command line names, or all, on every replica."""
    torch_xla.launch(_run, args=(ways, sys.argv[1:] or list(ways)), start_method="fork")
