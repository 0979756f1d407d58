"""Run by test_exchanges.py: torch.distributed.checkpoint writes what some replicas have, and others
read it. Takes "save" or "load", and the folder."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import torch_xla
import torch_xla.distributed.xla_backend


def state_of(weight: torch.Tensor, bias: torch.Tensor, step: int) -> dict[str, Any]:
    mesh = init_device_mesh("xla", (dist.get_world_size(),))
    return {
        "rows": distribute_tensor(weight.to("xla"), mesh, [Shard(0)]),
        "columns": distribute_tensor(weight.to("xla"), mesh, [Shard(1)]),
        "all": distribute_tensor(weight.to("xla"), mesh, [Replicate()]),
        "plain": bias.to("xla"),
        "step": step,
    }


def run(index: int, task: str, folder: str) -> None:
    dist.init_process_group("xla", init_method="xla://")
    weight, bias = torch.arange(70.0).view(10, 7), torch.arange(5.0)
    if task == "save":
        dcp.save(state_of(weight, bias, 3), checkpoint_id=folder)
    else:
        state = state_of(torch.zeros(10, 7), torch.zeros(5), 0)
        dcp.load(state, checkpoint_id=folder)
        for name in ("rows", "columns", "all"):
            tensor = state[name]
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            assert torch.equal(whole.cpu(), weight), name
        assert torch.equal(state["plain"].cpu(), bias)
        assert state["step"] == 3
    # One write: pieces of a line of several processes mix.
    sys.stdout.write(f"passed {task} {dist.get_world_size()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch_xla.launch(run, args=tuple(sys.argv[1:]), start_method="fork")
