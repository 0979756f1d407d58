"""Giving an optimizer its state before the first step, so that a checkpoint can be read into it."""

from __future__ import annotations

import torch

from torch_xla import _barriers, _causes


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Let an optimizer make its state by a step with gradients and learning rates of zero, which
    changes no parameter unless the optimizer decays weights by itself. Its state is to be replaced.

    Returns:
        The optimizer.
    """
    rates = [group.get("lr") for group in optimizer.param_groups]
    grads = {p: p.grad for group in optimizer.param_groups for p in group["params"]}
    for group in optimizer.param_groups:
        if "lr" in group:
            rate = group["lr"]
            group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0
    for parameter in grads:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, grad in grads.items():
        parameter.grad = grad
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate
    with _causes.because("prime_optimizer"):
        _barriers.sync()
    return optimizer
