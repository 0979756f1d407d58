"""Models that are split over 2, 4 and 8 devices train as on one: losses, weights, gradients and the
optimizer's states."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import model_programs
import pytest
from processes import json_of_program

PROGRAM = pathlib.Path(model_programs.__file__)
_QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


@functools.cache
def failures(count: int) -> Any:
    environment = {"CPU_NUM_DEVICES": str(count), "XLA_FLAGS": _QUICK}
    return json_of_program(PROGRAM, str(count), **environment)["failures"]


@pytest.mark.parametrize("claim", [check.__name__ for check in model_programs.CHECKS])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_model_trains_as_on_one_device(count, claim):
    failure = failures(count).get(claim)
    assert failure is None, failure
