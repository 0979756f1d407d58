"""What PyTorch's `fully_shard` asks of a device: operators that pack shards for an exchange and
unpack what it gave, which it registers by kind of device, and a way to move a module there. FSDP's
import imports it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_xla._torch import module_moves
from torch_xla._wrapping import to_wrap

# Kept: a registration ends with its library.
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


def change(module: Any) -> None:
    """Register the operators for xla, and teach what moves a module."""
    for name, function in _OPERATORS.items():
        _library.impl(name, function, "XLA")
    module._move_states_to_device = _move_states(to_wrap(module, "_move_states_to_device"))
