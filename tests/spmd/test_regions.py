"""Manual regions, shardings behind views and automatic ones, on meshes of one process."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest
import region_programs
from processes import json_of_program

PROGRAM = pathlib.Path(region_programs.__file__)


@functools.cache
def failures(count: int, *arguments: str, partitioner: str = "shardy") -> Any:
    variables = {"CPU_NUM_DEVICES": str(count), "XLA_PARTITIONER": partitioner}
    return json_of_program(PROGRAM, str(count), *arguments, **variables)["failures"]


@pytest.mark.parametrize("claim", [check.__name__ for check in region_programs.CHECKS])
@pytest.mark.parametrize(("count", "partitioner"), [(2, "shardy"), (4, "shardy"), (2, "gspmd")])
def test_on_a_mesh(count, partitioner, claim):
    failure = failures(count, partitioner=partitioner).get(claim)
    assert failure is None, failure


@pytest.mark.parametrize("claim", [check.__name__ for check in region_programs.AUTOMATIC])
@pytest.mark.parametrize("count", [2, 4])
def test_automatically(count, claim):
    failure = failures(count, "auto").get(claim)
    assert failure is None, failure
