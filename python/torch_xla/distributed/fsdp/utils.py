"""Activation checkpointing of whole modules."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


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
