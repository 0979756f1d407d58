"""An optimizer whose state is spread over the replicas. Here the one replica has all of it; master
weights in their own type, and clipping, are as for many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from torch_xla._replicas import world


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Steps copies of the parameters in `optimizer_dtype`, and writes them back.

    Args:
        params: the parameters, or groups of them.
        optimizer_class: the class of the optimizer that steps.
        optimizer_dtype: the type of the copies and of the optimizer's state; float32 by default.
        grad_clipping: clip the gradients before a step.
        max_norm: to this norm; 1.0 by default.
        pin_layout: accepted for compatibility.
        sharding_groups: the replicas that share one state.
        grad_norm_groups: the replicas whose gradients make one norm.
        lazy_init: make the copies at `init_zero()`, not now.
        save_master_weights: put the copies into `state_dict()`.
        defaults: arguments for `optimizer_class`.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: Any = None,
        grad_norm_groups: Any = None,
        lazy_init: bool = False,
        save_master_weights: bool = False,
        **defaults: Any,
    ) -> None:
        del pin_layout, sharding_groups, grad_norm_groups
        if world.world_size() != 1:
            raise NotImplementedError(
                f"ZeroRedundancyOptimizer: {world.world_size()} replicas are not supported yet"
            )
        super().__init__(params, defaults)
        self._optimizer_class = optimizer_class
        self._defaults = defaults
        self._dtype = optimizer_dtype or torch.float32
        self._max_norm = (1.0 if max_norm is None else max_norm) if grad_clipping else None
        self._saves_masters = save_master_weights
        self._grad_norm: Tensor | None = None
        self.inited = False
        if not lazy_init:
            self.init_zero()

    @property
    def grad_norm(self) -> Tensor | None:
        """The norm of the gradients before the last step, if they are clipped."""
        return self._grad_norm

    def init_zero(self) -> None:
        """Make the copies and the optimizer that steps them."""
        groups = []
        for group in self.param_groups:
            masters = [p.detach().to(self._dtype, copy=True) for p in group["params"]]
            groups.append({**group, "params": [m.requires_grad_() for m in masters]})
        self.base_optimizer = self._optimizer_class(groups, **self._defaults)
        self.inited = True

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each parameter with its copy."""
        return [
            (param, master)
            for group, base in zip(self.param_groups, self.base_optimizer.param_groups, strict=True)
            for param, master in zip(group["params"], base["params"], strict=True)
        ]

    def _take_settings(self) -> None:
        """What a scheduler changed in our groups holds for the optimizer that steps."""
        for group, base in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            base.update({key: value for key, value in group.items() if key != "params"})

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, **kwargs: Any
    ) -> float | None:
        """Clip, step the copies, and write them back. Reads nothing on the host."""
        if not self.inited:
            raise RuntimeError("ZeroRedundancyOptimizer.step: call init_zero() first")
        loss: float | None = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._take_settings()
        pairs = self._pairs()
        for param, master in pairs:
            master.grad = None if param.grad is None else param.grad.to(self._dtype)
        if self._max_norm is not None:
            masters = [master for _, master in pairs]
            self._grad_norm = torch.nn.utils.clip_grad_norm_(masters, self._max_norm)
        self.base_optimizer.step(**kwargs)
        for param, master in pairs:
            param.copy_(master)
        self.base_optimizer.zero_grad(set_to_none=True)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Our groups, the state of the optimizer that steps, and with `save_master_weights` the
        copies."""
        state = super().state_dict()
        state["base_state"] = self.base_optimizer.state_dict()["state"]
        if self._saves_masters:
            state["sharded_master_weights"] = {
                number: master.detach() for number, (_, master) in enumerate(self._pairs())
            }
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        rest = dict(state_dict)
        base_state = rest.pop("base_state")
        masters = rest.pop("sharded_master_weights", None)
        super().load_state_dict(rest)
        if not self.inited:
            self.init_zero()
        self.base_optimizer.load_state_dict(
            {**self.base_optimizer.state_dict(), "state": base_state}
        )
        for number, (param, master) in enumerate(self._pairs()):
            master.copy_(param if masters is None else masters[number])
