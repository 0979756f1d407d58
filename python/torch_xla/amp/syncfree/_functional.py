"""The steps of the optimizers by themselves, on lists of tensors: one recorded operator each, which
does nothing where `found_inf` is 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def _counted(state_steps: Sequence[Tensor], found_inf: Tensor) -> None:
    """A step that is left out is not counted."""
    torch._foreach_add_(list(state_steps), 1 - found_inf.to(torch.float32))


def adam_step(
    found_inf: Tensor,
    state_steps: Sequence[Tensor],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor],
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    use_adamw: bool,
) -> None:
    """A step of Adam, or with `use_adamw` of AdamW, written to the parameters and their state.

    Args:
        found_inf: a float32 tensor of one number: 1 leaves the step out.
        state_steps: float32 tensors of one number each: how many steps were made; the rest as for
            `torch.optim.Adam`, a tensor per parameter.
    """
    skipped = found_inf.to(torch.float32).reshape(())
    _counted(state_steps, skipped)
    step = torch._fused_adamw_ if use_adamw else torch._fused_adam_
    step(
        list(params),
        list(grads),
        list(exp_avgs),
        list(exp_avg_sqs),
        list(max_exp_avg_sqs),
        list(state_steps),
        amsgrad=amsgrad,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        found_inf=skipped,
    )


def sgd_step(
    found_inf: Tensor,
    state_steps: Sequence[Tensor],
    params: Sequence[Tensor],
    d_p_list: Sequence[Tensor],
    momentum_buffer_list: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """A step of SGD, written to the parameters and their momentum.

    Args:
        found_inf: a float32 tensor of one number: 1 leaves the step out.
        state_steps: float32 tensors of one number each: how many steps were made. Before the first
            there is no momentum, and dampening does not count.
        d_p_list: the gradients; the rest as for `torch.optim.SGD`, a tensor per parameter.
    """
    skipped = found_inf.to(torch.float32).reshape(())
    applied = 1 - skipped
    buffers: Sequence[Tensor | None] = momentum_buffer_list or [None] * len(params)
    for step, param, given, buffer in zip(state_steps, params, d_p_list, buffers, strict=True):
        grad = -given if maximize else given
        if weight_decay:
            grad = grad + weight_decay * param
        if momentum and buffer is not None:
            later = momentum * buffer + (1 - dampening) * grad
            moved = torch.where(step == 0, grad, later)
            buffer.copy_(torch.where(skipped == 0, moved, buffer))
            grad = grad + momentum * moved if nesterov else moved
        param.copy_(torch.where(skipped == 0, param - lr * grad, param))
        step.add_(applied)
