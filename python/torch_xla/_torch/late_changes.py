"""Changes to modules of PyTorch that take long to import, made when somebody imports them. So are
our modules that make them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder, Loader):
    def __init__(self, module: str, change: Callable[[Any], None]) -> None:
        self._module, self._change = module, change

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


# Module of PyTorch -> the module of this folder whose `change` is called with it.
_CHANGES = {
    "torch._inductor.compile_fx": "inductor",
    "torch.distributed.fsdp._fully_shard._fsdp_init": "fully_shard",
    "torch.distributed.fsdp._fully_shard._fully_shard": "annotated_fully_shard",
    "torch.distributed.tensor.parallel.style": "annotated_modules",
}


def _changing(ours: str) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        importlib.import_module(f"{__package__}.{ours}").change(module)

    return change


def when_imported(module: str, change: Callable[[Any], None]) -> None:
    """Call `change` with a module after it was imported; now, if it was already."""
    if module in sys.modules:
        change(sys.modules[module])
    else:
        sys.meta_path.insert(0, _Finder(module, change))


def install() -> None:
    """Make the changes of the table when their time comes."""
    for module, ours in _CHANGES.items():
        when_imported(module, _changing(ours))
