"""PyTorch's database of optimizers on the device: each of its configurations and implementations,
three steps of a small model."""

from __future__ import annotations

import warnings
from typing import Any, cast

import op_samples
import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db

import torch_xla

__all__ = ["check", "class_of", "entries"]

_IMPLEMENTATIONS = ("", "foreach", "fused", "capturable", "differentiable")


def class_of(info: OptimizerInfo) -> type[torch.optim.Optimizer]:
    """The entry's class, which torch annotates as an instance."""
    return cast("type[torch.optim.Optimizer]", info.optim_cls)


def entries() -> list[OptimizerInfo]:
    """The database's entries, by name."""
    return sorted(optim_db, key=lambda info: class_of(info).__name__)


def _steps(info: OptimizerInfo, settings: dict[str, Any], device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    weight = torch.randn(3, 2, dtype=torch.float64).to(device).detach().requires_grad_()
    bias = torch.randn(3, dtype=torch.float64).to(device).detach().requires_grad_()
    x = torch.randn(4, 2, dtype=torch.float64).to(device)
    # Muon takes matrices alone.
    parameters = [weight] if class_of(info).__name__ == "Muon" else [weight, bias]
    optimizer = class_of(info)(parameters, **settings)

    def closure() -> Any:  # a tensor, where torch declares a float
        optimizer.zero_grad()
        # With one minimum and no flat parts, where the steps of LBFGS would be chaotic.
        loss = (x @ weight.t() + bias - 1).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    if device == "xla":
        torch_xla.sync()
    return [p.detach() for p in (weight, bias)]


def check(info: OptimizerInfo, most: int = 1000) -> list[str]:
    """What differs from the CPU's plain loop, by configuration (the first so many) and
    implementation."""
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in info.optim_inputs_func(device="cpu")[:most]:
            for flag in _IMPLEMENTATIONS:
                known = (
                    *info.supported_impls,
                    *(["capturable"] if info.has_capturable_arg else []),
                )
                if flag and flag not in known:
                    continue
                chosen = {flag: True} if flag else {}
                settings = {**given.kwargs, **chosen}
                plain = {**given.kwargs, **({} if flag == "capturable" else chosen)}
                try:
                    expected = _steps(info, plain, "cpu")
                except Exception:  # the CPU refuses the combination
                    continue
                # Their formulas leave float64: the step's count is float32 in capturable ones.
                computed_in = torch.float32 if flag == "capturable" else None
                if class_of(info).__name__ == "Muon":
                    computed_in = torch.bfloat16
                try:
                    actual = _steps(info, settings, "xla")
                    problem = op_samples.compare(
                        expected, actual, tolerance=op_samples.Tolerance(computed_in)
                    )
                except Exception as error:
                    problem = op_samples.describe(error)
                if problem:
                    problems.append(f"{settings}: {problem}")
    return problems
