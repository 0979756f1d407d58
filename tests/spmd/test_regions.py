"""Manual regions, shardings behind views and automatic ones, on meshes of one process."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import region_programs

PROGRAM = pathlib.Path(region_programs.__file__)


@functools.cache
def failures(count: int, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(count), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "CPU_NUM_DEVICES": str(count)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["failures"]


@pytest.mark.parametrize("claim", [check.__name__ for check in region_programs.CHECKS])
@pytest.mark.parametrize("count", [2, 4])
def test_on_a_mesh(count, claim):
    failure = failures(count).get(claim)
    assert failure is None, failure


@pytest.mark.parametrize("claim", [check.__name__ for check in region_programs.AUTOMATIC])
@pytest.mark.parametrize("count", [2, 4])
def test_automatically(count, claim):
    failure = failures(count, "auto").get(claim)
    assert failure is None, failure
