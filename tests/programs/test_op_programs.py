"""A fixed number of random programs over the op database; op_programs.py runs them by the hour."""

from __future__ import annotations

import random

import op_programs
import pytest


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("seed", range(40))
def test_random_program_agrees_with_cpu(seed):
    program = op_programs.draw(random.Random(seed), length=12)
    if op_programs.difference(program):
        short = op_programs.shrunk(program)
        pytest.fail(f"{op_programs.difference(short)} after {short}")


def test_programs_see_a_wrong_result(monkeypatch):
    write = {"add_": lambda x, y, k: x.add_(y) if x.device.type == "cpu" else x.add_(y).add_(1)}
    monkeypatch.setattr(op_programs, "_WRITES", write)
    step = op_programs.Step("add_", (3, 3, 0))
    assert op_programs.difference([step])
    assert op_programs.shrunk([op_programs.Step("select", (0, 0, 0)), step]) == [step]
