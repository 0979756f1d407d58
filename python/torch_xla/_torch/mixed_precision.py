"""`mp_policy` of PyTorch's `fully_shard` under SPMD: while a module computes, its parameters stand
for copies of another dtype. Optimizers see the parameters themselves, to which gradients flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

# An owner of parameters, and the name of one.
Managed = Sequence[tuple[nn.Module, str]]


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


class _Copies:
    """The copies that stand in for some parameters, from `start` to `end`."""

    def __init__(self, managed: Managed, dtype: torch.dtype) -> None:
        self._managed, self._dtype = managed, dtype
        self._parameters: list[tuple[nn.Module, str, nn.Parameter]] = []

    def start(self) -> None:
        copies: dict[int, torch.Tensor] = {}  # tied parameters have one
        for owner, name in self._managed:
            parameter = owner._parameters[name]
            # Else a module around this one has done it.
            if isinstance(parameter, nn.Parameter) and parameter.is_floating_point():
                copy = copies.setdefault(id(parameter), parameter.to(self._dtype))
                owner._parameters[name] = copy  # type: ignore[assignment]
                self._parameters.append((owner, name, parameter))

    def end(self) -> None:
        for owner, name, parameter in self._parameters:
            owner._parameters[name] = parameter
        self._parameters.clear()


def _cast_parameters(module: nn.Module, managed: Managed, dtype: torch.dtype) -> None:
    copies = _Copies(managed, dtype)
    module.register_forward_pre_hook(lambda _m, _a: copies.start(), prepend=True)
    module.register_forward_hook(lambda _m, _a, _r: copies.end(), always_call=True)


def apply(module: nn.Module, managed: Managed, policy: Any) -> None:
    """Let a module compute by a `MixedPrecisionPolicy`, which may be None.

    Args:
        module: what `fully_shard` was called with, or one of them.
        managed: the parameters that it takes.
        policy: as PyTorch has it.

    Raises:
        NotImplementedError: gradients are to be summed in another dtype than they have.
    """
    if policy is None:
        return
    _check(policy, managed)
    if policy.param_dtype is not None:
        _cast_parameters(module, managed, policy.param_dtype)
        # Activation checkpointing calls modules within this one again when it has ended.
        for owner in {id(owner): owner for owner, _ in managed if owner is not module}.values():
            own = [(each, name) for each, name in managed if each is owner]
            _cast_parameters(owner, own, policy.param_dtype)
    if policy.param_dtype is not None and policy.cast_forward_inputs:
        module.register_forward_pre_hook(
            lambda _m, args, kwargs: _cast((args, kwargs), policy.param_dtype), with_kwargs=True
        )
    if policy.output_dtype is not None:
        module.register_forward_hook(lambda _m, _a, result: _cast(result, policy.output_dtype))
