"""What stands for a module's parameters while it computes: copies of another dtype, whole where the
parameters lie in parts (gathering.py). Optimizers see the parameters themselves, to which gradients
flow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.autograd.graph import saved_tensors_hooks

from torch_xla import _XLAC
from torch_xla._torch.gathering import Gathered, Gathering, Shardings

# An owner of parameters, and the name of one.
Managed = Sequence[tuple[nn.Module, str]]


@dataclasses.dataclass(frozen=True)
class StandInOptions:
    """What stands for parameters: of those that are floating-point another dtype, or None for their
    own; gathered are those of which there are shardings, for the backward pass once more with
    `reshard_after_forward`. None: if the module is within another one."""

    dtype: torch.dtype | None
    shardings: dict[nn.Parameter, Shardings]
    reshard_after_forward: bool | None = None


# The modules that are computing: what they call is within them.
_under_way: list[nn.Module] = []


class _StandIns:
    """Those of some parameters, from `start` to `end`. Of what Dynamo traces they are no part: its
    tensors have no shardings.

    Args:
        options: of the module that they are in.
        managed: the parameters.
    """

    def __init__(self, options: StandInOptions, managed: Managed) -> None:
        self._options, self._managed = options, managed
        self._parameters: list[tuple[nn.Module, str, nn.Parameter]] = []
        self._under_way: tuple[Gathering, saved_tensors_hooks] | None = None

    @_disable_dynamo
    def start(self, module: nn.Module, inputs: Sequence[Any]) -> None:
        _under_way.append(module)
        for owner, name in self._managed:
            parameter = owner._parameters[name]
            # Else a module around this one has done it.
            if isinstance(parameter, nn.Parameter):
                self._parameters.append((owner, name, parameter))
        # Tied parameters have one.
        made = self._made({parameter: None for _, _, parameter in self._parameters}, inputs)
        for owner, name, parameter in self._parameters:
            owner._parameters[name] = made[parameter]  # type: ignore[assignment]

    def _made(
        self, parameters: dict[nn.Parameter, None], inputs: Sequence[Any]
    ) -> dict[nn.Parameter, torch.Tensor]:
        dtype, shardings = self._options.dtype, self._options.shardings
        made: dict[nn.Parameter, torch.Tensor] = {
            p: p.to(dtype) if dtype is not None and p.is_floating_point() else p for p in parameters
        }
        split = [p for p in parameters if p in shardings and _XLAC._is_xla_tensor(p)]
        if split:
            is_repeated = self._options.reshard_after_forward
            if is_repeated is None:
                is_repeated = len(_under_way) > 1
            gathering = Gathering([shardings[p] for p in split], is_repeated)
            gathered = Gathered.apply(gathering, inputs, *[made[p] for p in split])  # type: ignore[no-untyped-call]
            made.update(zip(split, gathered, strict=True))
            if is_repeated:
                hooks = saved_tensors_hooks(gathering.kept, gathering.of_kept)
                hooks.__enter__()
                self._under_way = gathering, hooks
        return made

    @_disable_dynamo
    def end(self) -> None:
        _under_way.pop()
        if self._under_way is not None:
            gathering, hooks = self._under_way
            hooks.__exit__(None, None, None)
            gathering.end_first()
            self._under_way = None
        for owner, name, parameter in self._parameters:
            owner._parameters[name] = parameter
        self._parameters.clear()


def _install(module: nn.Module, options: StandInOptions, managed: Managed) -> None:
    stand_ins = _StandIns(options, managed)
    module.register_forward_pre_hook(stand_ins.start, prepend=True)
    module.register_forward_hook(lambda _m, _a, _r: stand_ins.end(), always_call=True)


def install(module: nn.Module, options: StandInOptions, managed: Managed) -> None:
    """Let a module compute with stand-ins for some of the parameters in it."""
    _install(module, options, managed)
    if options.dtype is None and not options.shardings:
        return
    # Activation checkpointing calls modules within this one again when it has ended.
    for owner in {id(owner): owner for owner, _ in managed if owner is not module}.values():
        _install(owner, options, [each for each in managed if each[0] is owner])
