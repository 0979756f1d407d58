"""Names of torch_xla 2.9 that mean nothing here. A refused name is there, so that imports succeed;
its use raises an error that says why and what takes its place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["Refused", "refusing"]


class Refused:
    """Stands for a function or class that is not here: whoever calls it, derives from it or calls a
    method of it is told why. Nothing is an instance of it."""

    def __init__(self, name: str, why: str, instead: str) -> None:
        self._name, self._why, self._instead = name, why, instead

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"{self._name} is not here: {self._why}; {self._instead}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._refuse()

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Refused:
        if name.startswith("__"):
            raise AttributeError(name)
        return Refused(f"{self._name}.{name}", self._why, self._instead)

    def __repr__(self) -> str:
        return f"<{self._name}: not here>"

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What the error says."""
        return f"Not here: {self._why}; {self._instead}."


@functools.cache
def _reasons(module: str) -> dict[str, tuple[str, str]]:
    """The refused names of a module, with why, and what to use."""
    from torch_xla._refused_names import REFUSED  # a long table, and seldom needed

    return {
        name: (why, instead)
        for names, why, instead in REFUSED.get(module, ())
        for name in names.split()
    }


def refusing(module: str, otherwise: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a module (PEP 562), which has its refused names. For others it is
    `otherwise`, or an AttributeError."""

    def attribute(name: str) -> Any:
        if name in _reasons(module):
            return Refused(f"{module}.{name}", *_reasons(module)[name])
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute
