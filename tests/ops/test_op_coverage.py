"""The generated page of lowered operators, and the registry that it is made from."""

from __future__ import annotations

import subprocess
import sys

import op_coverage
from clone import ROOT
from decompositions import DECOMPOSITIONS

import torch_xla

SCRIPT = ROOT / "tools" / "op_coverage.py"


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
    assert torch_xla._XLAC._registration_problems() == []


def test_decompositions_are_those_listed():
    listed = [name for names in DECOMPOSITIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    lowered = set(torch_xla._XLAC._lowered_operators())
    assert op_coverage.decomposed(op_coverage.overloads(), lowered) == set(listed)
