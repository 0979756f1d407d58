"""The type stub of the extension module says what the module has."""

from __future__ import annotations

import ast
import pathlib

import torch_xla
from torch_xla import _XLAC


def test_stub_names_what_the_module_has():
    stub = pathlib.Path(torch_xla.__path__[0]) / "_XLAC.pyi"
    named = {
        node.name
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    assert named == {name for name in dir(_XLAC) if callable(getattr(_XLAC, name))}
