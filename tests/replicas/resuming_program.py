"""Run by test_hosts.py under torchrun: training that goes on from its last checkpoint when torchrun
starts it again. Takes the folder, which all hosts share; replica 1 kills itself there once."""

from __future__ import annotations

import os
import pathlib
import signal
import sys

import torch
from torch import nn
from training_programs import batches, expected, mlp

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

STEPS, SAVE_STEPS, LAST_STEP = 10, 3, 7


def die_once(folder: pathlib.Path) -> None:
    mark = folder / "died"
    if xr.global_ordinal() == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def run(index: int, folder: str) -> None:
    del index
    path = pathlib.Path(folder, "checkpoint.pt")
    torch.manual_seed(7)
    model = mlp().to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses: list[float] = []
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        losses = state["losses"]
    xm.master_print(f"begins at step {len(losses)}", flush=True)
    for step, (x, y) in enumerate(batches(xr.global_ordinal(), xr.world_size(), STEPS)):
        if step < len(losses):
            continue
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to("xla")), y.to("xla"))
        loss.backward()
        if step == LAST_STEP:
            die_once(path.parent)
        xm.optimizer_step(optimizer)
        mean = xm.all_reduce(xm.REDUCE_SUM, loss.detach(), 1 / xr.world_size())
        losses.append(mean.item())
        if (step + 1) % SAVE_STEPS == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            xm.save({**state, "losses": losses}, path, global_master=True)
    want_losses, want = expected(mlp, xr.world_size(), STEPS)
    torch.testing.assert_close(losses, want_losses, rtol=1e-4, atol=1e-5)
    got = {name: value.cpu() for name, value in model.state_dict().items()}
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    xm.rendezvous("end")
    xm.master_print("passed", flush=True)


if __name__ == "__main__":
    torch_xla.launch(run, args=tuple(sys.argv[1:]))
