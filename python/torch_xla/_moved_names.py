"""Modules of torch_xla 2.9 that go by another name here, and those all of whose names are refused.
They stand above all that they name. The pages in docs/names are made of this table, of that of
refused names and of the package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from torch_xla._other_names import refusing

__all__ = ["MOVED", "install"]

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
        if not name.startswith("torch_xla."):
            return None
        from torch_xla._refused_names import REFUSED

        if name not in MOVED and name not in REFUSED:
            return None
        return importlib.util.spec_from_loader(name, _Loader())


def install() -> None:
    """Let modules of these tables be imported."""
    sys.meta_path.append(_Finder())
