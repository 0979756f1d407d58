"""`mp_policy` of PyTorch's `fully_shard` under SPMD: what a module computes in, takes and gives.
Next: stand_ins.py, for its parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from torch_xla._torch.stand_ins import Managed


def _check(policy: Any, managed: Managed) -> None:
    if policy.reduce_dtype in (None, policy.param_dtype):
        return
    for owner, name in managed:
        dtype = getattr(owner, name).dtype
        if policy.reduce_dtype != (policy.param_dtype or dtype):
            raise NotImplementedError(
                f"fully_shard: mp_policy.reduce_dtype={policy.reduce_dtype} is not supported under "
                f"SPMD, where gradients of {policy.param_dtype or dtype} are summed as such: leave "
                "it out, or use torch.autocast('xla')"
            )


def _cast(values: Any, dtype: torch.dtype | None) -> Any:
    """The values, with their floating-point tensors as that dtype."""
    if dtype is None:
        return values
    return pytree.tree_map(
        lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v,
        values,
    )


def apply(module: nn.Module, managed: Managed, policy: Any) -> torch.dtype | None:
    """Let a module take and give what a `MixedPrecisionPolicy` says, which may be None.

    Args:
        module: what `fully_shard` was called with, or one of them.
        managed: the parameters that it takes.
        policy: as PyTorch has it.

    Returns:
        The dtype in which it is to compute, or None.

    Raises:
        NotImplementedError: gradients are to be summed in another dtype than they have.
    """
    if policy is None:
        return None
    _check(policy, managed)
    if policy.param_dtype is not None and policy.cast_forward_inputs:
        module.register_forward_pre_hook(
            lambda _m, args, kwargs: _cast((args, kwargs), policy.param_dtype), with_kwargs=True
        )
    if policy.output_dtype is not None:
        module.register_forward_hook(lambda _m, _a, result: _cast(result, policy.output_dtype))
    dtype: torch.dtype | None = policy.param_dtype
    return dtype
