"""Run by test_exchanges.py with CPU_NUM_DEVICES=n: replicas in threads of one process."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any

import exchange_programs
import torch
import training_programs
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.runtime as xr
from torch_xla._replicas import meetings

SIZE = xr.global_runtime_device_count()


def exchanges() -> None:
    def run(model: object, loader: object, device: torch.device, context: object) -> int:
        rank, size = xm.get_ordinal(), xr.world_size()
        assert (device.index, SIZE) == (rank, size) and xr.process_count() == 1
        for name in ("reductions", "moves", "groups", "functions", "uneven"):
            exchange_programs.CHECKS[name](rank, size)
            exchange_programs.look()
        for group in meetings._own().process_groups.values():
            # Several would write one string at the same time (_gloo in meetings.py).
            assert group._get_backend(torch.device("cpu")).options._threads == 1
        xm.set_replication(device, torch_xla.devices())
        xm.rendezvous("end")
        return rank

    model = dp.DataParallel(nn.Identity(), torch_xla.devices())
    assert model(run, []) == list(range(SIZE))
    assert xr.world_size() == 1 and xm.get_ordinal() == 0


def training() -> None:
    """Twice with the same context: the optimizers go on where they were."""
    for make, of_one_device in training_programs.MODELS:
        torch.manual_seed(7)
        model = dp.DataParallel(make(), torch_xla.devices())
        compiled, _ = torch_xla._XLAC._computation_stats()
        parts = [list(training_programs.batches(rank, SIZE)) for rank in range(SIZE)]
        steps = [part for step in zip(*parts, strict=True) for part in step]
        half = len(steps) // 2
        halves = [model(loop, part) for part in (steps[:half], steps[half:])]
        losses = [first + second for first, second in zip(*halves, strict=True)]
        # All devices run the same programs: the first step's, and that of those behind it.
        assert torch_xla._XLAC._computation_stats()[0] - compiled <= 4
        mean = [sum(step) / SIZE for step in zip(*losses, strict=True)]
        want_losses, want = training_programs.expected(of_one_device, SIZE)
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


def channels() -> None:
    """Messages between threads; what goes wrong with them ends all, and is told."""

    def ring(model: object, loader: object, device: torch.device, context: object) -> None:
        rank, size = xm.get_ordinal(), xr.world_size()
        exchange_programs.check_channels(rank, size)
        exchange_programs.look()
        # The receiver waits on the host, and the sender's program for an exchange before it.
        total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))
        if rank == 0:
            xm.send(total + 1, 100)
        elif rank == 1:
            got = xm.recv(torch.zeros(2, device=device), 100)
            assert got.device == device and got.tolist() == [size + 1] * 2

    def both_receive(model: object, loader: object, device: torch.device, context: object) -> None:
        rank = xm.get_ordinal()
        xm.recv(torch.zeros(2, device=device), 200 + rank)

    def other_size(model: object, loader: object, device: torch.device, context: object) -> None:
        x = torch.zeros(2, device=device)
        if xm.get_ordinal() == 0:
            xm.send(x, 300)
        elif xm.get_ordinal() == 1:
            xm.recv(x[:1], 300)

    def is_failed(model: object, loader: object, device: torch.device, context: object) -> None:
        if xm.get_ordinal() == SIZE - 1:
            raise LookupError("on the last device")
        xm.recv(torch.zeros(2, device=device), 400 + xm.get_ordinal())

    def elsewhere(model: object, loader: object, device: torch.device, context: object) -> None:
        other = torch_xla.devices()[device.index - 1]
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=other))

    def starts(model: object, loader: object, device: torch.device, context: object) -> None:
        torch_xla.launch(print)

    def forgets(model: object, loader: object, device: torch.device, context: object) -> None:
        if xm.get_ordinal() == 0:
            xm.send(torch.ones(2, device=device), 500)

    model = dp.DataParallel(nn.Identity(), torch_xla.devices())
    start = time.monotonic()
    for _ in range(5):
        model(ring, [])
    for loop, error, words in (
        (both_receive, RuntimeError, "each other replica has ended, or waits for a message too"),
        (
            other_size,
            RuntimeError,
            "replica 0 sent float32 of size [2] on channel 300",
        ),
        (is_failed, LookupError, "on the last device"),
        (elsewhere, ValueError, "the device of this replica, got a tensor on xla:"),
        (starts, RuntimeError, "this is a replica already, in a thread of DataParallel"),
    ):
        try:
            model(loop, [])
        except error as found:
            assert words in str(found), found
        else:
            raise AssertionError(f"{words} was not said")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model(forgets, [])
    assert "what replica 0 sent on channel 500 was received by nobody" in str(told[-1].message)
    model(ring, [])
    assert time.monotonic() - start < 60  # of the 600 s that replicas wait for each other


def ends() -> None:
    """What the loops recorded last may be read after them, or by nobody."""

    def run(model: object, loader: object, device: torch.device, context: Any) -> torch.Tensor:
        return xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=device))

    totals = dp.DataParallel(nn.Identity(), torch_xla.devices())(run, [])
    assert totals[0].tolist() == [SIZE] * 2


if __name__ == "__main__":
    ways = {way.__name__: way for way in (exchanges, training, failures, channels, ends)}
    for name in sys.argv[1:] or ways:
        ways[name]()
        print("passed", name)
