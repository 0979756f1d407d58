"""What makes no sense under SPMD is an error at the call, which names the tensor, the mesh and the
axis."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import bad_input_programs
import pytest
from processes import json_of_program

PROGRAM = pathlib.Path(__file__).with_name("bad_input_programs.py")


@functools.cache
def said() -> Any:
    return json_of_program(PROGRAM, CPU_NUM_DEVICES="4")


@pytest.mark.parametrize("name", bad_input_programs.CASES)
def test_error_names_what_does_not_fit(name):
    kind, text, _ = bad_input_programs.CASES[name]
    if isinstance(text, str):
        assert said()[name] == f"{kind.__name__}: {text}"
    else:
        assert said()[name].startswith(kind.__name__)
        assert [part for part in text if part not in said()[name]] == [], said()[name]


def test_a_mesh_before_use_spmd_is_an_error():
    assert said()["a mesh before use_spmd"] == (
        "Mesh: 4 devices are 4 devices of their own; call torch_xla.runtime.use_spmd() first"
    )
