"""What type checkers know of the package is what it has."""

from __future__ import annotations

import ast
import pathlib

import check_layers

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


def names_imported_from(package: str, tree: ast.Module) -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == package
        for alias in node.names
    }


def test_type_checkers_know_the_submodules_that_are_imported_when_asked_for():
    root = pathlib.Path(torch_xla.__path__[0])
    missing = []
    for package in [root / "__init__.py", *root.rglob("*/__init__.py")]:
        text = package.read_text()
        if "_submodules.importing" not in text:
            continue
        name = ".".join(package.parent.relative_to(root.parent).parts)
        if check_layers.part_of(name.partition(".")[2]) in check_layers.INTERNALS:
            continue
        known = names_imported_from(name, ast.parse(text))
        for path in package.parent.iterdir():
            is_module = path.suffix == ".py" or (path / "__init__.py").exists()
            if is_module and not path.name.startswith("_") and path.stem not in known:
                missing.append(f"{name}.{path.stem}")
    # torch_xla.torch_xla is what the package takes its own names from.
    assert missing == ["torch_xla.torch_xla"]
