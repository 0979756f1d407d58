"""Finds out why a program is slow, and what it gains when that is mended.

    python examples/profile_slow.py                both programs, and what is counted of them
    python examples/profile_slow.py --trace DIR        and a profile of each, for Perfetto or XProf

The slow one does what programs from other devices do: it reads the loss in every step, so that the
host waits for the device, and its last batch of an epoch is smaller, which is one more program to
compile.
"""

import argparse
import contextlib
import pathlib
import time

import torch
from torch import nn

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.debug.profiler as xp


def batches(rows: int, size: int, is_padded: bool):
    """The set in batches. The last is smaller, or padded by rows that weigh nothing."""
    draw = torch.Generator().manual_seed(0)
    data = torch.randn(rows, 32, generator=draw)
    for chunk in data.split(size):
        weight = torch.ones(len(chunk))
        if is_padded and len(chunk) < size:
            weight = torch.cat([weight, torch.zeros(size - len(chunk))])
            chunk = torch.cat([chunk, torch.zeros(size - len(chunk), 32)])
        yield chunk, weight


def train(epochs: int, rows: int, is_slow: bool) -> tuple[list[float], dict[str, int]]:
    """The mean loss of each epoch, and what was counted."""
    torch.manual_seed(0)
    metrics.clear_all()
    device = torch_xla.device()
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    totals = []
    for _ in range(epochs):
        total = 0.0 if is_slow else torch.zeros((), device=device)
        for data, weight in batches(rows, 64, is_padded=not is_slow):
            with xp.StepTrace("step"):
                data, weight = data.to(device), weight.to(device)
                error = (model(data)[:, 0] - data.mean(1)).square() * weight
                loss = error.sum() / weight.sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                # The slow one waits here for the value; the other adds it up on the device.
                total += loss.item() if is_slow else loss.detach()
        totals.append(total)
    if not is_slow:
        totals = torch.stack(totals).tolist()
    reads = metrics.metric_data("TransferFromDeviceTime")
    counts = {
        "compilations": metrics.counter_value("UncachedCompile") or 0,
        "launches": metrics.metric_data("ExecuteTime")[0],
        "reads": reads[0] if reads else 0,
    }
    steps = len(list(batches(rows, 64, False)))
    return [total / steps for total in totals], counts


def main(arguments: list[str] | None = None) -> list[dict[str, int]]:
    """Runs both; what was counted of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--trace", type=pathlib.Path)
    options = parser.parse_args(arguments)
    found = []
    for name, is_slow in (("slow", True), ("mended", False)):
        with contextlib.ExitStack() as stack:
            if options.trace:
                xp.start_trace(str(options.trace / name))
                stack.callback(xp.stop_trace)
            start = time.perf_counter()
            losses, counts = train(options.epochs, options.rows, is_slow)
            seconds = time.perf_counter() - start
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"{name:7} {seconds:.2f} s, loss {losses[-1]:.4f}; {told}")
        found.append(counts)
    print("PT_XLA_DEBUG=1 tells of each compilation and read which line asked for it, and why.")
    return found


if __name__ == "__main__":
    main()
