"""`GradScaler` without the read that PyTorch's makes at each step.

PyTorch's asks the host whether a gradient overflowed, and steps or not. Here the step is recorded
either way, and the device chooses between what was and what the step made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch


def _is_on_device(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def _copy(value: object) -> object:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _differ(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return not torch.equal(a, b)
    return a is not b and a != b


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from (p for p in group["params"] if p.grad is not None)


class _Snapshot:
    """What an optimizer's step may change, as it was before."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._params = [(p, p.detach().clone()) for p in _parameters(optimizer)]
        self._state = {
            p: {key: _copy(value) for key, value in optimizer.state.get(p, {}).items()}
            for p, _ in self._params
        }

    @torch.no_grad()
    def restore_where(self, found_inf: torch.Tensor) -> None:
        """Undo the step if `found_inf` is not zero.

        Only what is not on the device, and state that this step made, needs to know on the host.
        """
        overflowed = found_inf != 0
        for param, old in self._params:
            param.copy_(torch.where(overflowed, old, param))
        for param, old_state in self._state.items():
            state = self._optimizer.state.get(param, {})
            for key, value in old_state.items():
                if _is_on_device(value) and _is_on_device(state.get(key)):
                    state[key].copy_(torch.where(overflowed, value, state[key]))
        if self._host_must_know() and found_inf.item() != 0:
            self._restore_on_host()

    def _host_must_know(self) -> bool:
        for param, old_state in self._state.items():
            state = self._optimizer.state.get(param, {})
            if state.keys() != old_state.keys():
                return True
            if any(
                _is_on_device(value) != _is_on_device(state[key])
                or (not _is_on_device(value) and _differ(value, state[key]))
                for key, value in old_state.items()
            ):
                return True
        return False

    def _restore_on_host(self) -> None:
        for param, old_state in self._state.items():
            if old_state:
                self._optimizer.state[param].update(
                    {key: value for key, value in old_state.items() if not _is_on_device(value)}
                )
            state = self._optimizer.state.get(param, {})
            for key in state.keys() - old_state.keys():
                del state[key]


def _count_steps_on_device(optimizer: torch.optim.Optimizer) -> None:
    """Adam and its like count steps on the host unless they are `capturable`: then skipping one
    would need the host."""
    for group in optimizer.param_groups:
        if "capturable" not in group or not all(_is_on_device(p) for p in group["params"]):
            continue
        group["capturable"] = True
        for param in group["params"]:
            state = optimizer.state.get(param, {})
            if isinstance(state.get("step"), torch.Tensor):
                state["step"] = state["step"].to(param.device)


class GradScaler(torch.amp.GradScaler):
    """Scales losses, so that gradients in float16 do not underflow, and skips the steps whose
    gradients overflowed. bfloat16 needs no scaling.

    A step reads nothing on the host with the optimizers of `torch_xla.amp.syncfree`, with PyTorch's
    own and `fused=True`, and with others whose state is on the device; the last are recorded with
    `capturable=True`, which they keep. The step in which an optimizer makes its state, and
    optimizers with state on the host, read whether the gradients overflowed.

    Args:
        init_scale: the factor to begin with.
        growth_factor: what multiplies it after `growth_interval` steps without an overflow.
        backoff_factor: what multiplies it after a step that was skipped.
        growth_interval: how many steps that is.
        enabled: False makes every method do what it does without scaling.
        use_zero_grad: accepted for compatibility; a skipped step changes nothing either way.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        use_zero_grad: bool = False,
    ) -> None:
        del use_zero_grad
        super().__init__("xla", init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def _maybe_opt_step(
        self,
        optimizer: torch.optim.Optimizer,
        optimizer_state: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> float | None:
        found = list(optimizer_state["found_inf_per_device"].values())
        if not all(_is_on_device(value) for value in found):
            return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)
        _count_steps_on_device(optimizer)
        snapshot = _Snapshot(optimizer)
        result: float | None = optimizer.step(*args, **kwargs)
        snapshot.restore_where(sum(value.to(found[0].device) for value in found))
        return result
