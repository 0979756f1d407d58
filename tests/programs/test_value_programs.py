"""Random programs of operators give the CPU's values: a fixed number of them here, `make fuzz` runs
thousands. VALUE_PROGRAMS sets how many."""

from __future__ import annotations

import os

import pytest
import torch
import value_programs
from random_programs import Program

PROGRAMS = int(os.environ.get("VALUE_PROGRAMS", "400"))
PER_TEST = 100


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_programs_give_the_cpus_values(first):
    failures = value_programs.search(first, min(PER_TEST, PROGRAMS - first))
    assert not failures, "\n" + "\n".join(failures)


def test_a_wrong_value_is_found_and_its_program_made_minimal(monkeypatch):
    plain = torch.neg

    def wrong(x):
        return plain(x) if x.device.type == "cpu" else plain(x).add(1)

    monkeypatch.setattr(torch, "neg", wrong)
    lines = [
        "v1 = make((2,), torch.float32, 3)",
        "v2 = torch.abs(v1)",
        "v3 = torch.neg(v1)",
        "v4 = torch.exp(v2)",
    ]
    smaller, why = value_programs.KIND.shrink(Program(0, lines, (2,)))
    assert smaller.lines == [lines[0], lines[2]]
    assert "on cpu" in why


def test_an_error_on_one_device_alone_is_found(monkeypatch):
    plain = torch.neg

    def refusing(x):
        if x.device.type != "cpu":
            raise TypeError("refused")
        return plain(x)

    monkeypatch.setattr(torch, "neg", refusing)
    lines = ["v1 = make((2,), torch.float32, 3)", "v2 = torch.neg(v1)"]
    _, why = value_programs.KIND.shrink(Program(0, lines, (1,)))
    assert "no error on cpu, TypeError on xla" in why
