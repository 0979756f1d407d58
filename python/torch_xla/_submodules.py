"""What is imported when one asks for it: submodules of a package, and names of other modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["importing", "taking"]


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


def taking(
    module: str, names: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a module that takes each of `names` from another module, by this table,
    and keeps it. For others it is `otherwise`, or an AttributeError."""

    def attribute(name: str) -> Any:
        if name in names:
            value = getattr(importlib.import_module(names[name]), name)
            setattr(sys.modules[module], name, value)
            return value
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute
