"""Gradient accumulation as one loop of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, _other_names
from torch_xla._capture.regions import Captured, Tensors
from torch_xla._spmd import gradients


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Add up the gradients of several batches, with the memory and the compilation of one.

    Args:
        train_step: takes a slice of each of `iterable_tensors` and then the carried tensors;
            returns the loss, or a tuple of the loss and the carried tensors' new values. It does
            not call `backward`: that is done here.
        iterable_tensors: tensors with one slice per batch.
        model: its parameters' `grad` receives the sum over the batches, on top of what it has.
        carried_tensors: handed from each call of `train_step` to the next.

    Returns:
        The sum of the losses, and the carried tensors' last values.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    sequences = list(iterable_tensors)
    if not sequences or len({s.shape[0] for s in sequences}) != 1:
        raise ValueError("gradient_accumulation: the iterable tensors must have equal first sizes")
    num_carried = len(carried_tensors)
    sums = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    # As a turn sees them: the sum of the losses, the gradients, the carried tensors, the slices.
    total = torch.zeros((), device=sequences[0].device)

    def turn(*stand_ins: torch.Tensor) -> Tensors:
        loss_sum, rest = stand_ins[0], stand_ins[1:]
        grads, rest = rest[: len(sums)], rest[len(sums) :]
        with torch.enable_grad():
            out = train_step(*rest[num_carried:], *rest[:num_carried])
            loss, *carried = [out] if isinstance(out, torch.Tensor) else out
            new = torch.autograd.grad(loss, parameters, allow_unused=True)
        if len(carried) != num_carried:
            raise RuntimeError(
                f"gradient_accumulation: train_step must return the loss and {num_carried} carried "
                f"tensors, got {len(carried)}"
            )
        added = [g if n is None else g + n for g, n in zip(grads, new, strict=True)]
        return [loss_sum + loss.detach(), *added, *(c.detach() for c in carried)]

    state = [total, *sums, *(c.detach() for c in carried_tensors)]
    captured = Captured(turn, [*state, *(s[0] for s in sequences)])
    captured.refuse_writes("gradient_accumulation")
    results, _ = _XLAC._record_region(
        "scan", [captured.graph], [*state, *sequences], len(state), sequences[0].shape[0]
    )
    for parameter, grad in zip(parameters, results[1 : 1 + len(sums)], strict=True):
        parameter.grad = grad
        gradients.place_gradient(parameter)
    return (results[0], *results[1 + len(sums) :])


__getattr__ = _other_names.refusing(__name__)
