"""What an optimizer loads under SPMD: a state that is like its parameter lies as the parameter
does. PyTorch moves it to the parameter's device, where it would be whole on each of a mesh."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._spmd import sharding
from torch_xla._wrapping import to_wrap

_NAME = "_process_value_according_to_param_policy"


def install() -> None:
    """Let all optimizers do so; once."""
    owner = torch.optim.Optimizer
    original = to_wrap(owner, _NAME, owner.load_state_dict)
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def process(param: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        spec = sharding.sharding_of(param)
        if spec is None or value.dim() == 0 or value.shape != param.shape:
            return original(param, value, *args, **kwargs)
        if value.device.type == "cpu":
            # In parts at once: whole, it might be more than a device has room for.
            dtype = param.dtype if param.is_floating_point() else value.dtype
            value = sharding.upload("load_state_dict", value.to(dtype), param.device, spec)
        loaded = original(param, value, *args, **kwargs)
        if _XLAC._is_xla_tensor(loaded):
            sharding.place("load_state_dict", loaded, spec)
        return loaded

    setattr(owner, _NAME, staticmethod(process))
