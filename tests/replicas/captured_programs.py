"""Run by test_exchanges.py with CPU_NUM_DEVICES=2: exchanges inside functions that are recorded
once, compiled by Dynamo, looped over or computed again."""

from __future__ import annotations

from collections.abc import Callable

import torch
import ways
from torch import Tensor
from torch.utils import checkpoint as torch_checkpoint

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as metrics
import torch_xla.runtime as xr
from torch_xla._replicas import meetings
from torch_xla.experimental.scan import scan
from torch_xla.utils import checkpoint as xla_checkpoint


def parts_of(steps: int = 3) -> list[Tensor]:
    return [torch.arange(12.0).view(3, 4) * (r + 1) + steps for r in range(xr.world_size())]


def own(steps: int = 3) -> tuple[Tensor, Tensor]:
    """This replica's numbers, and the sum of all."""
    parts = parts_of(steps)
    return parts[xr.global_ordinal()].to("xla"), sum(parts[1:], parts[0])


def count(name: str) -> int:
    return metrics.counter_value(name) or 0


def check_compiled(step: Callable[[Tensor], Tensor]) -> None:
    for steps in range(4):
        x, total = own(steps)
        torch_xla.sync()
        before = count("UncachedCompile")
        assert torch.equal(step(x).cpu(), total * 2)
        assert steps < 2 or count("UncachedCompile") == before


def in_compiled_functions() -> None:
    @torch_xla.compile
    def step(x: Tensor) -> Tensor:
        return xm.all_reduce(xm.REDUCE_SUM, x) * 2

    check_compiled(step)


def in_graphs_of_dynamo() -> None:
    name = meetings.whole_group().name

    @torch.compile(backend="openxla", fullgraph=True)
    def step(x: Tensor) -> Tensor:
        total = torch.ops._c10d_functional.all_reduce(x * 1, "sum", name)
        return torch.ops._c10d_functional.wait_tensor(total) * 2

    check_compiled(step)


def in_loops() -> None:
    x, total = own()

    def body(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        carry = carry + xm.all_reduce(xm.REDUCE_SUM, row)
        return carry, carry * 1

    last, rows = scan(body, torch.zeros(4, device="xla"), x)
    assert torch.equal(last.cpu(), total.sum(0))
    assert torch.equal(rows.cpu(), total.cumsum(0))


def in_blocks_computed_again() -> None:
    for checkpointed in (
        lambda f, *a: torch_checkpoint.checkpoint(f, *a, use_reentrant=False),
        xla_checkpoint.checkpoint,
    ):
        x, _ = own()
        x.requires_grad_()
        result = checkpointed(lambda y: xf.all_reduce(xm.REDUCE_SUM, y.square()) * 2, x)
        result.sum().backward()
        want = sum((own_part.square() for own_part in parts_of()), torch.zeros(3, 4)) * 2
        assert torch.equal(result.detach().cpu(), want)
        assert x.grad is not None
        # Each element is in the results of all.
        torch.testing.assert_close(x.grad.cpu(), 4 * x.detach().cpu() * xr.world_size())


WAYS = {
    "compile": in_compiled_functions,
    "dynamo": in_graphs_of_dynamo,
    "scan": in_loops,
    "checkpoint": in_blocks_computed_again,
}


if __name__ == "__main__":
    ways.launch(WAYS)
