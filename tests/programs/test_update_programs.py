"""Weights that are replaced in their own memory have the CPU's values (src/hlo/update_order.h).

UPDATE_PROGRAMS sets how many random programs run (update_programs.py).
"""

from __future__ import annotations

import os

import pytest
import update_programs

PROGRAMS = int(os.environ.get("UPDATE_PROGRAMS", "150"))
PER_TEST = 50


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_programs_agree_with_cpu(first):
    failures = update_programs.search(first, min(PER_TEST, PROGRAMS - first))
    assert not failures, "\n" + "\n".join(failures)


@pytest.mark.usefixtures("quick_compilation")
def test_programs_see_a_weight_that_is_read_too_late(monkeypatch):
    """The CPU's programs replace a weight before its last reader, the device's behind it."""

    class Early(update_programs.UpdateRun):
        def line(self, text: str) -> str:
            if self.device == "cpu":
                text = text.replace("d1 = squash(", "q.add_(1); d1 = squash(")
            return super().line(text)

    monkeypatch.setattr(update_programs.UpdateMaker, "run_class", Early)
    assert len(update_programs.search(0, 5)) == 5
