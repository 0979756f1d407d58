"""Parameters that are made of annotated ones under SPMD: deep copies lie as what they copy, and
gradients of what a module registers lie as it does, whoever made it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from torch_xla._spmd import gradients, sharding
from torch_xla._wrapping import to_wrap


def _keep_in_copies(owner: type[torch.Tensor]) -> None:
    original = to_wrap(owner, "__deepcopy__")

    @functools.wraps(original)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:  # noqa: N807
        is_made = id(self) not in memo
        copied: torch.Tensor = original(self, memo)
        if is_made and type(self) is type(copied) is owner:
            sharding.keep_way(copied, sharding.way_of(self))
        return copied

    owner.__deepcopy__ = __deepcopy__  # type: ignore[method-assign]


def _follow(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    del module, name
    gradients.follow(parameter)


def install() -> None:
    """Let all do so; once."""
    if hasattr(nn.Parameter.__deepcopy__, "__wrapped__"):
        return
    _keep_in_copies(torch.Tensor)
    _keep_in_copies(nn.Parameter)
    register_module_parameter_registration_hook(_follow)
