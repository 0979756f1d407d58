"""Submodules as attributes of their packages without an import of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable

__all__ = ["importing"]


def importing(package: str) -> Callable[[str], object]:
    """The `__getattr__` of a package (PEP 562): imports the submodule that is asked for. An
    AttributeError where the package has none."""

    def attribute(name: str) -> object:
        full_name = f"{package}.{name}"
        if not name.startswith("__"):
            try:
                return importlib.import_module(full_name)
            except ModuleNotFoundError as error:
                if error.name != full_name:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute
