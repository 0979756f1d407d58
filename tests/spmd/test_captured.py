"""Loops, compiled functions, accumulated gradients and what is computed again, over tensors that
are split on a grid of four devices."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import captured_sharded_programs
import pytest
from processes import json_of_program
from quick_options import COMPILING_QUICKLY

PROGRAM = pathlib.Path(captured_sharded_programs.__file__)


@functools.cache
def failures() -> Any:
    return json_of_program(PROGRAM, "4", CPU_NUM_DEVICES="4", **COMPILING_QUICKLY)["failures"]


@pytest.mark.parametrize("claim", [check.__name__ for check in captured_sharded_programs.CHECKS])
def test_on_a_grid(claim):
    failure = failures().get(claim)
    assert failure is None, failure
