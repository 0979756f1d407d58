"""xla tensors on their way into a file: which share memory, and copies of them on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla import _XLAC, _nested


def is_ours(value: Any) -> bool:
    """Whether it is an xla tensor."""
    return isinstance(value, torch.Tensor) and _XLAC._is_xla_tensor(value)


def check_view_sharing(obj: Any) -> None:
    """Check that no xla tensor inside of `obj` is a view of another one's memory.

    Each of them is saved and moved by itself, so what they share would be lost. Tied tensors, which
    are the same memory as a whole, are fine.

    Raises:
        RuntimeError: two are; the text says which.
    """
    owners: dict[int, tuple[int, str, bool]] = {}
    found = _nested.walk(obj, is_ours)
    for number, (path, tensor) in enumerate(found, start=1):
        is_view = _XLAC._is_view(tensor)
        first, first_path, first_is_view = owners.setdefault(
            _XLAC._alias_id(tensor), (number, path, is_view)
        )
        if first != number and (is_view or first_is_view):
            raise RuntimeError(
                f"Tensor ID {number} is sharing a view with tensor ID {first} ('{path}' and "
                f"'{first_path}'); clone one of them, or move both to the CPU first"
            )


def to_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on the CPU, read in one go; those that are tied stay tied."""
    unique: dict[tuple[int, bool], torch.Tensor] = {}
    keys = []
    for number, tensor in enumerate(tensors):
        is_view = _XLAC._is_view(tensor)
        keys.append((number if is_view else _XLAC._alias_id(tensor), is_view))
        unique.setdefault(keys[-1], tensor)
    moved = dict(zip(unique, _XLAC._to_cpu(list(unique.values())), strict=True))
    result = []
    for key, tensor in zip(keys, tensors, strict=True):
        copy = moved[key].detach().requires_grad_(tensor.requires_grad)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        result.append(torch.nn.Parameter(copy, tensor.requires_grad) if is_parameter else copy)
    return result


def on_cpu(data: Any) -> Any:
    """`data` with copies on the CPU in the place of the xla tensors inside of it."""
    return _nested.replace(data, is_ours, to_cpu)
