"""Batch normalisation with the statistics of all members of a group."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torch_xla._replicas import functional
from torch_xla._wrapping import to_wrap


class _Sum(torch.autograd.Function):
    """The sum over the members, and over their gradients."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, group: str) -> Tensor:
        ctx.group = group
        return functional.all_reduce(input, "sum", group)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return functional.all_reduce(grad_output, "sum", ctx.group), None


def _sum(tensor: Tensor, group: str) -> Tensor:
    result: Tensor = _Sum.apply(tensor, group)  # type: ignore[no-untyped-call]
    return result


def synchronized(norm: nn.modules.batchnorm._BatchNorm, input: Tensor, group: str) -> Tensor:
    """What `norm` gives in training for a batch that is spread over the members, of which each may
    have another number of samples.

    Args:
        norm: the module, whose running statistics are updated.
        input: this member's samples: [batch, features, ...].
        group: what collectives take as `group_name`.
    """
    dims = [dim for dim in range(input.dim()) if dim != 1]
    shape = [1 if dim in dims else -1 for dim in range(input.dim())]
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    own = wide.new_full((1,), input.numel() // max(1, input.size(1)))
    sums = _sum(torch.cat([wide.sum(dims), own]), group)
    count, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
    centered = wide - mean.view(shape)
    var = _sum(centered.square().sum(dims), group) / count
    if norm.track_running_stats:
        _track(norm, mean.detach(), var.detach() * (count / (count - 1).clamp(min=1)))
    scale = torch.rsqrt(var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    result = centered * scale.view(shape)
    if norm.bias is not None:
        result = result + norm.bias.view(shape)
    return result.to(input.dtype)


@torch.no_grad()
def _track(norm: nn.modules.batchnorm._BatchNorm, mean: Tensor, var: Tensor) -> None:
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    for running, now in ((norm.running_mean, mean), (norm.running_var, var)):
        assert running is not None
        if norm.momentum is None:  # the mean of all batches
            running.add_((now.to(running.dtype) - running) / norm.num_batches_tracked)
        else:
            running.lerp_(now.to(running.dtype), norm.momentum)


def install() -> None:
    """Let `torch.nn.SyncBatchNorm` take tensors of the device in training."""
    original: Callable[[nn.SyncBatchNorm, Tensor], Tensor] = to_wrap(nn.SyncBatchNorm, "forward")
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def forward(self: nn.SyncBatchNorm, input: Tensor) -> Tensor:
        if input.device.type != "xla" or not self.training or not dist.is_initialized():
            return original(self, input)
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        group: Any = self.process_group or dist.group.WORLD
        return synchronized(self, input, group.group_name)

    nn.SyncBatchNorm.forward = forward  # type: ignore[method-assign]
