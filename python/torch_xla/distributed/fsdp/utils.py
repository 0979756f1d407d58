"""Activation checkpointing of whole modules, and linear layers that keep dimensions apart."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from torch_xla import _other_names
from torch_xla.distributed.spmd.linear import (
    XLAPatchedLinear as XLAPatchedLinear,
    apply_xla_patch_to_nn_linear as apply_xla_patch_to_nn_linear,
)


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """Let a module compute its activations again in the backward pass in the place of keeping them.

    Args:
        module: the module, whose `forward` is replaced.

    Returns:
        The module.
    """
    forward = module.forward

    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    module.forward = recomputed
    return module


__getattr__ = _other_names.refusing(__name__)
