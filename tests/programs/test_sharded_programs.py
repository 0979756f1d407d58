"""Random programs on meshes of 2, 4 and 8 devices give the CPU's values: a fixed number of them,
`make fuzz` runs thousands. SHARDED_PROGRAMS sets how many."""

from __future__ import annotations

import os

import pytest
import sharded_programs
import torch
import workers
from quick_options import XLA_FLAGS
from random_programs import Program

import torch_xla

PROGRAMS = int(os.environ.get("SHARDED_PROGRAMS", "204"))
# Of twelve. A program of writes has loops, each turn of which is a barrier for all.
SHARES = {"value": 5, "view": 4, "autograd": 2, "memory": 1}

pytestmark = pytest.mark.skipif(
    torch_xla.runtime.device_type() != "CPU", reason="the mesh is made of the CPU's devices"
)


@pytest.fixture(autouse=True)
def quick_children(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", XLA_FLAGS)


@pytest.mark.parametrize("count", sharded_programs.COUNTS)
def test_random_programs_on_a_mesh_give_the_cpus_values(count):
    children = sharded_programs.Search(count)
    failures = []
    for kind, share in SHARES.items():
        number = PROGRAMS * share // (12 * len(sharded_programs.COUNTS))
        failures += children.texts(kind, 0, number)
    children.close()
    assert not failures, "\n" + "\n".join(failures)


def test_programs_are_annotated_written_and_computed_in_parts():
    programs = sharded_programs.make("view", 8, 0, 60)
    lines = "\n".join(p.text() for p in programs).splitlines()
    for call in ("split(", "clear(", "spread(", "(2, 2, 2), ", "(2, 4), "):
        assert any(call in line for line in lines), call
    assert any("((" in line.split("split(")[-1] for line in lines if "split(" in line)
    assert sum(len(p.barriers) > 1 for p in programs) > 50
    assert all(list(p.barriers) == sorted(p.barriers) for p in programs)


class Children(sharded_programs.Search):
    """Answers by the texts of programs, as children would."""

    def __init__(self) -> None:
        self.count = 2
        self.on_mesh, self.alone = object(), object()
        self.kills = workers.Died("SIGABRT")

    def failing(self, kind, first, number):
        return [(Program(first, LINES, (2,)), "SIGABRT"), (Program(1, ["bad"]), "wrong")]

    def judge(self, worker, kind, program):
        if "bad" in program.lines:  # on one device too
            return "wrong"
        dies = worker is self.on_mesh and any("split(v1" in line for line in program.lines)
        return self.kills.how if dies else ""


LINES = [
    "v1 = make((2,), torch.float32, 3)",
    "v2 = torch.neg(v1)",
    "v1 = split(v1, (2,), [0, 1], (0,))",
]


def test_a_death_is_a_failure_and_what_one_device_has_too_is_none():
    (text,) = Children().texts("value", 0, 2)
    assert text.splitlines() == [
        "value, 2 devices", "# program 0", LINES[0], LINES[2], "torch_xla.sync()", "# SIGABRT",
    ]  # fmt: skip


def test_a_wrong_value_on_the_mesh_alone_is_found(monkeypatch):
    plain = torch.neg
    monkeypatch.setattr(
        torch, "neg", lambda x: plain(x) + 1 if x.device.type == "xla" else plain(x)
    )
    assert "on cpu" in sharded_programs.judge("value", Program(0, LINES, (2,)))
