"""Operators that users write in XLA's operations (torch_xla.core.xla_builder)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla.core import xla_builder as xb


class Op:
    """A function on `xla_builder.Op`s as a function on xla tensors."""

    def __init__(self, name: str, opfn: Callable[..., xb.Op]) -> None:
        self.name = name
        self._fn = opfn

    def __call__(self, *args: torch.Tensor, **kwargs: Any) -> Any:
        """The result, or a tuple of them: `kwargs` are constants of the program."""
        for i, arg in enumerate(args):
            if not _XLAC._is_xla_tensor(arg):
                raise TypeError(
                    f"{self.name}: argument {i} is not an XLA tensor: got one on {arg.device}"
                )
        before = _XLAC._set_scope(self.name)
        try:
            result = self._fn(*map(xb.Op, args), **kwargs)._value
        finally:
            _XLAC._set_scope(before)
        return result


def register(name: str, opfn: Callable[..., xb.Op]) -> Op:
    """An operator for tensors.

    Args:
        name: under which graphs and profiles show what it records.
        opfn: takes an `Op` per tensor, and keyword arguments; returns an `Op`, or `Op.tuple` of
            several.

    Gradients flow through what it records.
    """
    return Op(name, opfn)
