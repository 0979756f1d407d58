"""Run by test_exchanges.py with CPU_NUM_DEVICES=n: replicas in threads of one process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

import exchange_programs
import torch
import training_programs
from torch import nn

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.runtime as xr

SIZE = xr.global_runtime_device_count()


def exchanges() -> None:
    def run(model: object, loader: object, device: torch.device, context: object) -> int:
        rank, size = xm.get_ordinal(), xr.world_size()
        assert (device.index, SIZE) == (rank, size) and xr.process_count() == 1
        for name in ("reductions", "moves", "groups", "uneven"):
            exchange_programs.CHECKS[name](rank, size)
            exchange_programs.look()
        xm.set_replication(device, torch_xla.devices())
        xm.rendezvous("end")
        return rank

    model = dp.DataParallel(nn.Identity(), torch_xla.devices())
    assert model(run, []) == list(range(SIZE))
    assert xr.world_size() == 1 and xm.get_ordinal() == 0


def training() -> None:
    """Twice with the same context: the optimizers go on where they were."""

    def norm(features: int) -> nn.Module:
        return xf.SyncBatchNorm(features)

    for make, with_norms in (
        (training_programs.mlp, training_programs.mlp),
        (training_programs.cnn, lambda: training_programs.cnn(norm)),
    ):
        torch.manual_seed(7)
        model = dp.DataParallel(with_norms(), torch_xla.devices())
        compiled, _ = torch_xla._XLAC._computation_stats()
        parts = [list(training_programs.batches(rank, SIZE)) for rank in range(SIZE)]
        steps = [part for step in zip(*parts, strict=True) for part in step]
        half = len(steps) // 2
        halves = [model(loop, part) for part in (steps[:half], steps[half:])]
        losses = [first + second for first, second in zip(*halves, strict=True)]
        # All devices run the same programs: the first step's, and that of those behind it.
        assert torch_xla._XLAC._computation_stats()[0] - compiled <= 4
        mean = [sum(step) / SIZE for step in zip(*losses, strict=True)]
        want_losses, want = training_programs.expected(make, SIZE)
        torch.testing.assert_close(mean, want_losses, rtol=1e-4, atol=1e-5)
        for replica in model.models:
            got = {key: value.cpu() for key, value in replica.state_dict().items()}
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def loop(
    model: nn.Module, loader: Iterable[Any], device: torch.device, context: Any
) -> list[float]:
    optimizer = context.getattr_or(
        "optimizer", lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    )
    losses = []
    for _, (x, y) in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def failures() -> None:
    """What one of the loops raises reaches the caller, who may go on with other exchanges."""

    def run(model: object, loader: object, device: torch.device, context: Any) -> list[float]:
        total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))
        if context.getattr_or("calls", 0) == 0 and device.index == SIZE - 1:
            context.calls = 1
            raise LookupError("on the last device")
        return xm.all_reduce(xm.REDUCE_SUM, total).tolist()

    model = dp.DataParallel(nn.Identity(), torch_xla.devices())
    start = time.monotonic()
    try:
        model(run, [])
    except LookupError as error:
        assert "on the last device" in str(error)
    else:
        raise AssertionError("the failure was lost")
    assert time.monotonic() - start < 60  # of the 600 s that replicas wait for each other
    assert model(run, []) == [[SIZE**2] * 2] * SIZE
    try:
        dp.DataParallel(nn.Identity(), torch_xla.devices()[::-1])(run, [])
    except RuntimeError as error:
        assert "can't be replicas of each other" in str(error)
    else:
        raise AssertionError("one device was two replicas")


def ends() -> None:
    """What the loops recorded last may be read after them, or by nobody."""

    def run(model: object, loader: object, device: torch.device, context: Any) -> torch.Tensor:
        return xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))

    totals = dp.DataParallel(nn.Identity(), torch_xla.devices())(run, [])
    assert totals[0].tolist() == [SIZE] * 2


if __name__ == "__main__":
    ways = {way.__name__: way for way in (exchanges, training, failures, ends)}
    for name in sys.argv[1:] or ways:
        ways[name]()
        print("passed", name)
