"""Names of torch_xla 2.9 that mean something else here, or nothing: modules that go by another
name, and what is refused. A refused name is there, so that imports succeed; its use raises an error
that says why and what takes its place. docs/names.md is made of these tables and of the package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn

from torch_xla._refused_names import REFUSED

__all__ = ["MOVED", "Refused", "install", "refusing"]

# Module -> those whose names are its own.
MOVED: dict[str, tuple[str, ...]] = {
    "torch_xla._dynamo.dynamo_bridge": ("torch_xla.core.dynamo_bridge",),
    "torch_xla._internal.utils": ("torch_xla.core.xla_model",),
    "torch_xla._patched_functions": ("torch.nn.utils",),
    "torch_xla.amp.syncfree.adam": ("torch_xla.amp.syncfree",),
    "torch_xla.amp.syncfree.adamw": ("torch_xla.amp.syncfree",),
    "torch_xla.amp.syncfree.sgd": ("torch_xla.amp.syncfree",),
    "torch_xla.c10d_registration": ("torch_xla.distributed.xla_backend",),
    "torch_xla.custom_kernel": ("torch_xla.experimental.custom_kernel",),
    "torch_xla.distributed.spmd.api": ("torch_xla.distributed.spmd.dtensor",),
    "torch_xla.distributed.spmd.xla_sharded_tensor": (
        "torch_xla.distributed.spmd",
        "torch_xla.distributed.spmd.sharded_tensor",
    ),
    "torch_xla.distributed.spmd.xla_sharding": (
        "torch_xla.distributed.spmd",
        "torch_xla.distributed.spmd.sharded_tensor",
    ),
    "torch_xla.experimental.distributed_checkpoint.util": (
        "torch_xla.experimental.distributed_checkpoint.optimizer_state",
    ),
    "torch_xla.experimental.pjrt": (
        "torch_xla.runtime",
        "torch_xla._internal.pjrt",
        "torch_xla.core.xla_model",
    ),
    "torch_xla.experimental.pjrt_backend": ("torch_xla.distributed.xla_backend",),
    "torch_xla.experimental.tpu": ("torch_xla._internal.tpu",),
    "torch_xla.experimental.xla_sharding": (
        "torch_xla.distributed.spmd",
        "torch_xla.distributed.spmd.sharded_tensor",
    ),
    "torch_xla.neuron": ("torch_xla._internal.neuron",),
    "torch_xla.plugins": ("torch_xla.experimental.plugins",),
    "torch_xla.tpu": ("torch_xla._internal.tpu",),
}


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


def _reasons(module: str) -> dict[str, tuple[str, str]]:
    """The refused names of a module, with why, and what to use."""
    return {
        name: (why, instead)
        for names, why, instead in REFUSED.get(module, ())
        for name in names.split()
    }


def refusing(module: str, otherwise: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a module (PEP 562), which has its refused names. For others it is
    `otherwise`, or an AttributeError."""
    reasons = _reasons(module)

    def attribute(name: str) -> Any:
        if name in reasons:
            return Refused(f"{module}.{name}", *reasons[name])
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute


def _found_in(module: str, sources: Sequence[str]) -> Callable[[str], Any]:
    def attribute(name: str) -> Any:
        if not name.startswith("__"):
            for source in sources:
                try:
                    return getattr(importlib.import_module(source), name)
                except AttributeError:
                    continue
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute


class _Loader(Loader):
    """Makes the modules that have no file."""

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        sources = MOVED.get(name, ())
        # As with a file of imports: the backend of torch.distributed registers itself by one.
        for source in sources:
            importlib.import_module(source)
        module.__doc__ = (
            f"By another name: {' and '.join(sources)}."
            if sources
            else "None of its names are here."
        )
        module.__getattr__ = refusing(name, _found_in(name, sources))  # type: ignore[method-assign]


class _Finder(MetaPathFinder):
    """Finds those whose files are not there: it comes last."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("torch_xla.") or (name not in MOVED and name not in REFUSED):
            return None
        return importlib.util.spec_from_loader(name, _Loader())


def install() -> None:
    """Let modules of these tables be imported."""
    sys.meta_path.append(_Finder())
