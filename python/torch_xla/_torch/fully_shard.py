"""What PyTorch's `fully_shard` asks of a device: operators that pack shards for an exchange and
unpack what it gave, which it registers by kind of device, and a way to move a module there."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from torch_xla._torch import module_moves, streams

# Kept: a registration ends with its library. The operators are defined when FSDP is imported.
_library = torch.library.Library("fsdp", "IMPL")


def _copy_in(
    inputs: list[Tensor], output: Tensor, sizes: list[int], numel: int, rank: int
) -> tuple[Tensor, Tensor]:
    own = output.narrow(0, numel * rank, numel)
    with torch.no_grad():
        torch._foreach_copy_(torch.split(own, sizes), inputs)
    return own, output


def _copy_out(gathered: Tensor, sizes: list[int], dim: int = 0, *, out: list[Tensor]) -> None:
    torch.split_with_sizes_copy(gathered, sizes, dim=dim, out=out)


def _concatenate_chunks(tensors: list[Tensor], dim: int, num_chunks: int, *, out: Tensor) -> None:
    torch._chunk_cat(tensors, dim, num_chunks, out=out)


def _copy(tensor: Tensor, data: Tensor) -> None:
    tensor.copy_(data)


_OPERATORS: dict[str, Callable[..., object]] = {
    "all_gather_copy_in": _copy_in,
    "split_with_sizes_copy": _copy_out,
    "chunk_cat": _concatenate_chunks,
    "copy_": _copy,
}


def _move_states(original: Callable[..., None]) -> Callable[..., None]:
    """As `module_moves`: parameters that move to xla stay the objects they were."""

    @functools.wraps(original)
    def _move_states_to_device(
        params: list[Tensor], buffers: list[Tensor], device: torch.device
    ) -> None:
        if device.type == "xla":
            for tensor in (*params, *buffers):
                if type(tensor.data) is Tensor and tensor.device.type not in ("xla", "meta"):
                    module_moves.move(tensor, lambda each: each.to(device))
        original(params, buffers, device)

    return _move_states_to_device


class _Finder(MetaPathFinder, Loader):
    """Changes PyTorch's module when it is imported: importing it here would take a second."""

    module = "torch.distributed.fsdp._fully_shard._fsdp_init"

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
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
        _change(module)


def _change(module: Any) -> None:
    module._move_states_to_device = _move_states(module._move_states_to_device)


def _announce_stream() -> None:
    """FSDP asks `torch.accelerator`, which knows no device of this kind, for its stream."""
    original = torch.accelerator.current_stream

    @functools.wraps(original)
    def current_stream(device: Any = None, /) -> Any:
        is_ours = device is None and not torch.accelerator.is_available()
        return streams.current_stream() if is_ours else original(device)

    torch.accelerator.current_stream = current_stream


def install() -> None:
    """Register the operators for xla, and teach what moves a module and what waits."""
    for name, function in _OPERATORS.items():
        _library.impl(name, function, "XLA")
    _announce_stream()
    if _Finder.module in sys.modules:
        _change(sys.modules[_Finder.module])
    else:
        sys.meta_path.insert(0, _Finder())
