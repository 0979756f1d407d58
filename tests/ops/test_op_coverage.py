"""The generated page of lowered operators, and the registry that it is made from."""

from __future__ import annotations

import subprocess
import sys

import op_coverage
import pytest
from clone import ROOT
from decompositions import DECOMPOSITIONS
from pinned_torch import IS_PINNED, PINNED

import torch_xla

SCRIPT = ROOT / "tools" / "op_coverage.py"

# What some supported torch has no operators for: newer ones, and one that went.
NOT_EVERYWHERE = {
    *("_foreach_clone", "_foreach_mm"),
    *("_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward"),
    "cholesky",
}
NEWER = {"linalg_matrix_sqrth", "linalg_polar"}


@pytest.mark.skipif(not IS_PINNED, reason=f"the page is of torch {PINNED}")
def test_page_is_current():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_lowering_fits_an_operator():
    problems = ("this torch has no operator of that name", "there are rules for what torch has not")
    found = set(torch_xla._XLAC._registration_problems())
    if IS_PINNED:
        assert found == {f"{name}: {problems[0]}" for name in NEWER}
    allowed = {f"{name}: {problem}" for name in NEWER | NOT_EVERYWHERE for problem in problems}
    assert found <= allowed


def test_decompositions_are_those_listed():
    listed = [name for names in DECOMPOSITIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    lowered = set(torch_xla._XLAC._lowered_operators())
    overloads = op_coverage.overloads()
    found = op_coverage.decomposed(overloads, lowered)
    # The list holds those of all versions of torch, but for names of dimensions, which are gone.
    assert {name for name in found if not name.endswith("names")} <= set(listed)
    assert not IS_PINNED or found == {name for name in listed if name in overloads}
