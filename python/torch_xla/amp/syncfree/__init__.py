"""Optimizers that leave a step out where the device says so, without asking the host.

They are PyTorch's, in their fused form: one recorded operator per group, which takes `found_inf`.
`torch_xla.amp.GradScaler` gives it to them; `step(found_inf=...)` is for loops without a scaler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_xla import _submodules


class _WithFoundInf(torch.optim.Optimizer):
    """Adds `found_inf` to the step of a fused optimizer of PyTorch."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        if not (kwargs.get("foreach") or kwargs.get("differentiable")):
            kwargs.setdefault("fused", True)
        if not kwargs.get("fused"):
            raise ValueError(
                f"{type(self).__name__}: only the fused form can skip a step on the device; leave "
                "out fused, foreach and differentiable, or use torch.optim"
            )
        super().__init__(params, *args, **kwargs)

    def step(  # type: ignore[override]
        self,
        closure: Callable[[], float] | None = None,
        found_inf: torch.Tensor | None = None,
    ) -> float | None:
        """Update the parameters, unless `found_inf`, a tensor of one number, is 1."""
        # PyTorch wraps the step of each class in its hooks; those of this class have run already.
        fused_step: Callable[..., float | None] = super().step.__func__  # type: ignore[attr-defined]
        if getattr(fused_step, "hooked", False):
            fused_step = fused_step.__wrapped__  # type: ignore[attr-defined]
        if found_inf is None:
            return fused_step(self, closure)
        self.found_inf = found_inf.to(torch.float32).reshape(())
        try:
            return fused_step(self, closure)
        finally:
            del self.found_inf


class SGD(_WithFoundInf, torch.optim.SGD):
    """`torch.optim.SGD` with `step(closure=None, found_inf=None)`."""


class Adam(_WithFoundInf, torch.optim.Adam):
    """`torch.optim.Adam` with `step(closure=None, found_inf=None)`."""


class AdamW(_WithFoundInf, torch.optim.AdamW):
    """`torch.optim.AdamW` with `step(closure=None, found_inf=None)`."""


__getattr__ = _submodules.importing(__name__)
