"""What once ended a process, or held it for ever, is answered: each program of `deaths.txt` runs in
a child, whose death is this test's failure and no other's."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import death_programs
import pytest
import workers

_PROGRAMS: dict[str, list[str]] = collections.defaultdict(list)
for _dtype, _program, _outcome in death_programs.programs():
    _PROGRAMS[f"{_program} | {_outcome}"].append(_dtype)


@pytest.fixture(scope="module")
def child() -> Iterator[workers.Worker]:
    worker = workers.Worker("death_programs:run", timeout_s=120)
    yield worker
    worker.close()


@pytest.mark.parametrize("line", _PROGRAMS)
def test_process_survives(child, line):
    program, outcome = line.split(" | ")
    answers = {dtype: child.ask(dtype, program, outcome) for dtype in _PROGRAMS[line]}
    assert not any(answers.values()), answers


def test_death_is_an_answer_with_a_name():
    worker = workers.Worker("os:kill", timeout_s=60)
    assert worker.ask(0, 0) is None
    own = workers.Worker("os:_exit", timeout_s=60)
    assert own.ask(3) == workers.Died("exit status 3")
    assert isinstance(own.ask("no number"), workers.Raised)
    late = workers.Worker("time:sleep", timeout_s=1)
    assert late.ask(60) == workers.Died("no answer in 1 s")
    aborted = workers.Worker("os:abort")
    assert aborted.ask() == workers.Died("SIGABRT")
    for one in (worker, own, late, aborted):
        one.close()
