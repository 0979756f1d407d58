"""What stands for a module's parameters while it computes: copies of another dtype, whole where the
parameters lie in parts. Optimizers see the parameters themselves, to which gradients flow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from torch_xla import _XLAC

# An owner of parameters, and the name of one.
Managed = Sequence[tuple[nn.Module, str]]


@dataclasses.dataclass(frozen=True)
class Shardings:
    """Of a parameter, and of what stands for it: by the library's names."""

    parts: str
    whole: str


class _Gathered(torch.autograd.Function):
    """Tensors that lie in parts, gathered; their gradients lie in parts again, so that devices
    exchange each once. All in one call: there are many, and a call takes longer than its work."""

    @staticmethod
    def forward(
        ctx: Any, shardings: Sequence[Shardings], *parts: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.shardings = shardings
        return tuple(_XLAC._constrained(parts, [its.whole for its in shardings]))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        given = [
            (grad, its.parts)
            for grad, its in zip(grads, ctx.shardings, strict=True)
            if grad is not None
        ]
        made = iter(_XLAC._constrained([grad for grad, _ in given], [parts for _, parts in given]))
        return None, *(None if grad is None else next(made) for grad in grads)


class _StandIns:
    """Those of some parameters, from `start` to `end`."""

    def __init__(
        self, managed: Managed, dtype: torch.dtype | None, shardings: dict[nn.Parameter, Shardings]
    ) -> None:
        self._managed, self._dtype, self._shardings = managed, dtype, shardings
        self._parameters: list[tuple[nn.Module, str, nn.Parameter]] = []

    def start(self) -> None:
        for owner, name in self._managed:
            parameter = owner._parameters[name]
            # Else a module around this one has done it.
            if isinstance(parameter, nn.Parameter):
                self._parameters.append((owner, name, parameter))
        # Tied parameters have one.
        made = self._made({parameter: None for _, _, parameter in self._parameters})
        for owner, name, parameter in self._parameters:
            owner._parameters[name] = made[parameter]  # type: ignore[assignment]

    def _made(self, parameters: dict[nn.Parameter, None]) -> dict[nn.Parameter, torch.Tensor]:
        made: dict[nn.Parameter, torch.Tensor] = {
            p: p.to(self._dtype) if self._dtype is not None and p.is_floating_point() else p
            for p in parameters
        }
        split = [p for p in parameters if p in self._shardings and _XLAC._is_xla_tensor(p)]
        if split:
            shardings = [self._shardings[p] for p in split]
            gathered = _Gathered.apply(shardings, *[made[p] for p in split])  # type: ignore[no-untyped-call]
            made.update(zip(split, gathered, strict=True))
        return made

    def end(self) -> None:
        for owner, name, parameter in self._parameters:
            owner._parameters[name] = parameter
        self._parameters.clear()


def _install(
    module: nn.Module,
    managed: Managed,
    dtype: torch.dtype | None,
    shardings: dict[nn.Parameter, Shardings],
) -> None:
    stand_ins = _StandIns(managed, dtype, shardings)
    module.register_forward_pre_hook(lambda _m, _a: stand_ins.start(), prepend=True)
    module.register_forward_hook(lambda _m, _a, _r: stand_ins.end(), always_call=True)


def install(
    module: nn.Module,
    managed: Managed,
    dtype: torch.dtype | None,
    shardings: dict[nn.Parameter, Shardings],
) -> None:
    """Let a module compute with stand-ins.

    Args:
        module: the module.
        managed: which of the parameters in it.
        dtype: of the stand-ins that are floating-point; None: the parameters'.
        shardings: of those that are to be gathered.
    """
    if dtype is None and not shardings:
        return
    _install(module, managed, dtype, shardings)
    # Activation checkpointing calls modules within this one again when it has ended.
    for owner in {id(owner): owner for owner, _ in managed if owner is not module}.values():
        _install(owner, [each for each in managed if each[0] is owner], dtype, shardings)
