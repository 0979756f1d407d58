"""An optimizer whose state is spread over the replicas: each steps its rows of every parameter, in
their own type, and gives them to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from torch_xla import _other_names
from torch_xla._replicas import collectives, functional, shards
from torch_xla._replicas.groups import own_group


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Averages the gradients over the replicas, steps copies of this replica's rows of the
    parameters in `optimizer_dtype`, and writes the parameters back.

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
        del pin_layout
        self._group = own_group("ZeroRedundancyOptimizer", sharding_groups)
        self._sharding_groups = sharding_groups
        self._norm_groups = grad_norm_groups
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

    @property
    def sharding_groups(self) -> Any:
        """The replicas that share one state, or None for all."""
        return self._sharding_groups

    @sharding_groups.setter
    def sharding_groups(self, new_sharding_groups: Any) -> None:
        if self.inited:
            raise RuntimeError(
                "ZeroRedundancyOptimizer: sharding_groups can be set before init_zero() alone"
            )
        self._group = own_group("ZeroRedundancyOptimizer", new_sharding_groups)
        self._sharding_groups = new_sharding_groups

    remove_hooks = _other_names.Refused(
        "torch_xla.distributed.zero_redundancy_optimizer.ZeroRedundancyOptimizer.remove_hooks",
        "the optimizer puts no hooks on parameters",
        "leave it out",
    )

    def get_shape_info(self) -> dict[int, torch.Size]:
        """The whole shape of each parameter, by its number in `state_dict()`."""
        every = (param for group in self.param_groups for param in group["params"])
        return {number: param.shape for number, param in enumerate(every)}

    @torch.no_grad()
    def allgather_weights_and_update_full_parameter(self, sharding_scheme: Any = None) -> None:
        """Write what all replicas' copies hold to the parameters, as a step does at its end."""
        if sharding_scheme is not None:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: there is one scheme, by rows; expected None"
            )
        self._write_back(self._pairs())

    def init_zero(self) -> None:
        """Make the copies and the optimizer that steps them."""
        groups = []
        for group in self.param_groups:
            masters = [self._own_rows(p).to(self._dtype, copy=True) for p in group["params"]]
            groups.append({**group, "params": [m.requires_grad_() for m in masters]})
        self.base_optimizer = self._optimizer_class(groups, **self._defaults)
        self.inited = True

    def _own_rows(self, tensor: Tensor) -> Tensor:
        given = tensor.detach()
        return given if self._group.size == 1 else shards.own_rows(given, self._group)

    def _own_gradients(self, gradients: list[Tensor]) -> list[Tensor]:
        """This replica's rows of the averaged gradients."""
        size = self._group.size
        if size == 1:
            return gradients
        padded = [shards.padded(gradient, size) for gradient in gradients]
        parts = functional.reduce_scatter_rows(padded, "sum", size, self._group.name)
        return [part.div_(size) for part in parts]

    def _clip(self, gradients: list[Tensor], max_norm: float) -> None:
        """Scale the gradients, of which each replica has rows, so that their norm is at most
        `max_norm`."""
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        squares = norms.square().sum()
        if self._group.size > 1:
            squares = functional.all_reduce(squares, "sum", self._group.name)
        if self._norm_groups is not None:
            squares = collectives.all_reduce("sum", squares, groups=self._norm_groups)
        self._grad_norm = squares.sqrt()
        scale = (max_norm / (self._grad_norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)

    def _write_back(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        if self._group.size == 1:
            for param, master in pairs:
                param.copy_(master)
            return
        rows = [master.detach().to(param.dtype) for param, master in pairs]
        whole = functional.all_gather_rows(rows, self._group.size, self._group.name)
        for (param, _), gathered in zip(pairs, whole, strict=True):
            param.copy_(shards.whole(gathered, param.shape))

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
        given = [(param.grad, master) for param, master in pairs if param.grad is not None]
        gradients = self._own_gradients([grad.to(self._dtype, copy=True) for grad, _ in given])
        if self._max_norm is not None and gradients:
            self._clip(gradients, self._max_norm)
        for (_, master), gradient in zip(given, gradients, strict=True):
            master.grad = gradient
        self.base_optimizer.step(**kwargs)
        self._write_back(pairs)
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
            master.copy_(self._own_rows(param) if masters is None else masters[number])
