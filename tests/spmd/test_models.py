"""Models that are split over several devices train as on one: losses, weights, gradients and the
optimizer's states. SPMD_DEVICES says how many, "2,4,8" for example (`make conformance`)."""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any

import model_programs
import pytest
from processes import json_of_program
from quick_options import COMPILING_QUICKLY

PROGRAM = pathlib.Path(model_programs.__file__)
COUNTS = [int(count) for count in os.environ.get("SPMD_DEVICES", "4").split(",")]
_FURTHER = model_programs.FURTHER if "SPMD_DEVICES" in os.environ else []
CLAIMS = [check.__name__ for check in (*model_programs.CHECKS, *_FURTHER)]


@functools.cache
def failures(count: int) -> Any:
    environment = {"CPU_NUM_DEVICES": str(count), **COMPILING_QUICKLY}
    return json_of_program(PROGRAM, str(count), *CLAIMS, **environment)["failures"]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("count", COUNTS)
def test_a_model_trains_as_on_one_device(count, claim):
    failure = failures(count).get(claim)
    assert failure is None, failure
