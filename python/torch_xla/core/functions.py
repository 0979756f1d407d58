"""Exchanges between replicas that gradients flow through."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torch_xla._replicas import batch_norm, collectives, meetings, world


class AllReduce(torch.autograd.Function):
    """`all_reduce` as an autograd function; only sums have a gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        reduce_type: str,
        scale: float,
        groups: Any,
        pin_layout: bool = True,
    ) -> Tensor:
        ctx.arguments = reduce_type, scale, groups, pin_layout
        ctx.save_for_backward(input)
        result: Tensor = collectives.all_reduce(reduce_type, input, scale, groups, pin_layout)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        reduce_type, scale, groups, pin_layout = ctx.arguments
        if reduce_type != collectives.REDUCE_SUM:
            raise NotImplementedError(
                f"the gradient of an all_reduce with {reduce_type!r} is not defined; only that of "
                f"{collectives.REDUCE_SUM!r} is"
            )
        grad = collectives.all_reduce(reduce_type, grad_output, scale, groups, pin_layout)
        return grad, None, None, None, None


def all_reduce(
    reduce_type: str,
    value: Tensor,
    scale: float = 1.0,
    groups: Any = None,
    pin_layout: bool = True,
) -> Tensor:
    """`xm.all_reduce` of one tensor, with a gradient for sums."""
    result: Tensor = AllReduce.apply(  # type: ignore[no-untyped-call]
        value, reduce_type, scale, groups, pin_layout
    )
    return result


class AllGather(torch.autograd.Function):
    """`all_gather` as an autograd function."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        result: Tensor = collectives.all_gather(input, dim)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grad = collectives.reduce_scatter(
            collectives.REDUCE_SUM, grad_output, 1.0, ctx.dim, world.world_size()
        )
        return grad, None


def all_gather(value: Tensor, dim: int = 0) -> Tensor:
    """`xm.all_gather` of one tensor; its gradient is the sum of the replicas' for this part."""
    result: Tensor = AllGather.apply(value, dim)  # type: ignore[no-untyped-call]
    return result


class AllReduceSumLayer(AllReduce):
    """The sum over all replicas; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return AllReduce.forward(ctx, x, collectives.REDUCE_SUM, 1.0, None)


class SyncBatchNorm(nn.BatchNorm1d):
    """Batch normalisation with the statistics of all replicas, over inputs of any rank.

    Args:
        num_features: the size of dimension 1.
        eps: what is added to the variance.
        momentum: how much of the running statistics a batch replaces.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)

    def forward(self, batch: Tensor) -> Tensor:
        """The batch, normalised: [batch, features, ...]."""
        self._check_input_dim(batch)
        if world.world_size() == 1 or not self.training:
            return super().forward(batch)
        return batch_norm.synchronized(self, batch, meetings.whole_group().name)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: expected a batch of features, got {input.dim()}D")


def distributed_mm(w: Tensor, x: Tensor, split: int = 1) -> Tensor:
    """`w @ x`, with the rows of `w` spread over the replicas, in `split` products.

    Args:
        w: this replica's rows.
        x: the right operand.
        split: into how many products along the columns of `w`.
    """
    if w.size(1) % (split * world.world_size()) != 0:
        raise ValueError(f"distributed_mm: {w.size(1)} columns do not divide into {split} parts")
    w = all_gather(w)
    parts = zip(w.chunk(split, 1), x.chunk(split, 0), strict=True)
    return torch.stack([a @ b for a, b in parts]).sum(0)
