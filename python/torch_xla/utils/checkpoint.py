"""Activation checkpointing under the name that torch_xla gave it. `torch.utils.checkpoint` does the
same: `import torch_xla` has put what xla needs into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils.checkpoint import (
    CheckpointFunction as CheckpointFunction,
    get_device_states as get_device_states,
    set_device_states as set_device_states,
)

from torch_xla import _other_names
from torch_xla._capture.optimization_barrier import optimization_barrier_ as optimization_barrier_


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """`torch.utils.checkpoint.checkpoint`, under the name that torch_xla gave it."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)


__getattr__ = _other_names.refusing(__name__)
