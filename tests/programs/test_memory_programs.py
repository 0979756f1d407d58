"""Writes that depend on the memory they write have the CPU's values (docs/dev/in_place_updates.md).

MEMORY_PROGRAMS sets how many random programs run (memory_programs.py).
"""

from __future__ import annotations

import os

import in_place_fusions
import memory_programs
import pytest
import torch
from with_settings import optimized_hlo

import torch_xla

PROGRAMS = int(os.environ.get("MEMORY_PROGRAMS", "200"))
PER_TEST = 100


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_programs_agree_with_cpu(first):
    failures = memory_programs.search(first, min(PER_TEST, PROGRAMS - first))
    assert not failures, "\n" + "\n".join(failures)


FIRST_WRITES = [
    "x.fill_diagonal_(0.)",
    "x.view(-1)[:7].fill_(3.)",
    "x[:, 1] = x[0, 0] + 1",
    "x[2] = x[1, 3]",
    "x.as_strided((2,), (3,), 1).fill_(9.)",
    "x.unsqueeze(1).narrow(2, 1, 2).mul_(2)",
    "x.unfold(1, 2, 2)[0].zero_()",
    "x.diagonal(1).add_(1)",
    "x = x @ x.t() @ x",
    "x = x.cumsum(0)",
]
SECOND_WRITES = [
    "x[1:] = x[:-1] * 2",
    "x[1:] = x[:-1].clone() * 2",
    "x[:-1] = x[1:] + 1",
    "x[:, 1:] = x[:, :-1] * 2",
    "x.view(-1)[5:] = x.view(-1)[:15] * 2",
    "x.view(-1)[3:15] = x.softmax(0).view(-1)[1:13]",
    "x.view(-1)[2:18] = x.flip(0).reshape(-1)[4:]",
    "x.t()[1:] = x.t()[:-1] - 1",
    "x.view(-1)[4:12].add_(x.sum() * 0.1)",
]


@pytest.mark.usefixtures("quick_compilation")
def test_two_writes_of_one_memory_have_the_values_of_the_cpu():
    programs = [(a, b) for a in FIRST_WRITES for b in SECOND_WRITES]

    def run(device):
        scopes = [{"x": torch.arange(20.0, device=device).view(4, 5) + 1} for _ in programs]
        torch_xla.sync()
        for scope, lines in zip(scopes, programs, strict=True):
            for line in lines:
                exec(line, scope)
        return [scope["x"] for scope in scopes]

    want, got = run("cpu"), run("xla")
    assert in_place_fusions.find(optimized_hlo(*got)) == []
    wrong = [
        program
        for program, a, b in zip(programs, want, torch_xla._XLAC._to_cpu(got), strict=True)
        if not torch.allclose(a, b)
    ]
    assert wrong == []


def test_slices_of_one_memory_have_the_values_of_the_cpu():
    values = torch.randn(3, 2, 4)

    def run(device):
        x = values.to(device)
        torch_xla.sync()
        flat = x.flatten(0, 1)
        part = flat.narrow(0, 2, 1).diagonal(0, 0, 1)
        torch.mul(flat.clone(), -1.0, out=flat)
        x.narrow(2, 0, 1).copy_(torch.full((3, 2, 1), -1.0, device=device) + part.mean())
        return x.cpu()

    torch.testing.assert_close(run("xla"), run("cpu"))


@pytest.mark.usefixtures("quick_compilation")
def test_no_update_is_fused_with_what_reads_its_memory():
    runs = []
    for program in memory_programs.KIND.make_programs(1000, 60):
        run = memory_programs.Run(program, "xla")
        lines = [line for line in program.lines if "sync()" not in line]
        for line in lines:
            run.line(line)
        runs.append(run)
    assert in_place_fusions.find(optimized_hlo(*(run.scope["x"] for run in runs))) == []


@pytest.mark.skipif(
    torch_xla.runtime.device_type() != "CPU", reason="other platforms have no calls of the host"
)
@pytest.mark.parametrize(
    ("write", "calls"),
    [
        ("x[1:] = x[:-1] * 2", 0),  # memory by itself: XLA sees what is read
        ("x[1][2:].add_(y.sum())", 0),  # another memory
        ("x.view(-1)[3:9].mul_(2).add_(1)", 0),  # just what is replaced
        ("x.view(-1)[3:9] = x.view(-1)[:6] * 2", 1),
        ("x.view(-1)[3:9].add_(x.sum())", 1),
    ],
)
def test_only_updates_that_read_other_elements_are_computed_first(write, calls):
    x, y = torch.ones(4, 5, device="xla"), torch.ones(3, device="xla")
    torch_xla.sync()
    exec(write, {"x": x, "y": y})
    text = torch_xla._XLAC._pending_program(0)
    assert text.count("torch_xla.optimization_barrier") == calls


def test_fusion_that_reads_what_it_wrote_is_found():
    fusion = """HloModule m

%fused (p: f32[4,5]) -> f32[20] {
  %p = f32[4,5]{1,0} parameter(0)
  %bitcast.0 = f32[20]{0} bitcast(%p)
  %slice.0 = f32[3,5]{1,0} slice(%p), slice={[0:3], [0:5]}
  %bitcast.1 = f32[15]{0} bitcast(%slice.0)
  %c = s64[] constant(5)
  ROOT %update = f32[20]{0} dynamic-update-slice(%bitcast.0, %bitcast.1, %c)
}

%same (p: f32[20]) -> f32[20] {
  %p = f32[20]{0} parameter(0)
  %slice.0 = f32[15]{0} slice(%p), slice={[5:20]}
  %negate.0 = f32[15]{0} negate(%slice.0)
  %c = s64[] constant(5)
  ROOT %update.1 = f32[20]{0} dynamic-update-slice(%p, %negate.0, %c)
}
"""
    assert [line.split()[1] for line in in_place_fusions.find(fusion)] == ["%update"]
