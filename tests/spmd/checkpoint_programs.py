"""Run by test_checkpoints.py with CPU_NUM_DEVICES=n and a folder: checkpoints of tensors on a mesh.
In `one_device` of the folder is a checkpoint that one device wrote; `on_mesh` gets one for it.

Prints a dictionary of the checks' failures.
"""

from __future__ import annotations

import copy
import io
import json
import pathlib
import sys
import tempfile
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from mesh_programs import (
    XLA,
    batches_of,
    count,
    failures_of,
    mark_all,
    mark_columns_and_rows,
    mesh_of,
    mlp,
    shapes_of,
)
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC, _saving
from torch_xla.debug import metrics
from torch_xla.experimental.distributed_checkpoint import (
    CheckpointManager,
    SPMDLoadPlanner,
    SPMDSavePlanner,
    prime_optimizer,
)
from torch_xla.experimental.distributed_checkpoint.parts import PartsInHostMemory

FOLDER = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path()


def fresh(seed: int = 4) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = mlp().to(XLA)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    return {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": step}


def go_on(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[torch.Tensor]:
    batches = batches_of(8, 4)
    for step in steps:
        x, y = (t.to(XLA) for t in batches[step])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        torch_xla.sync()
    return [p.detach().cpu() for p in model.parameters()]


def sharded(seed: int = 4) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = fresh(seed)
    mark_all("data")(model, mesh_of(count()))
    return model, optimizer


def saved(folder: str, **options: Any) -> tuple[CheckpointManager, list[torch.Tensor]]:
    """A checkpoint after two steps of a model of which each device has a part, and what two more
    give."""
    manager = CheckpointManager(folder, save_interval=1, **options)
    model, optimizer = sharded()
    go_on(model, optimizer, range(2))
    assert manager.save(2, state_of(model, optimizer, 2))
    return manager, go_on(model, optimizer, range(2, 4))


def training_goes_on_on_another_mesh() -> None:
    manager, want = saved(str(FOLDER / "on_mesh"), num_of_threads=2)
    model, optimizer = fresh(seed=9)
    mark_columns_and_rows(model, mesh_of(count() // 2, 2))
    shapes = [shapes_of(p) for p in model.parameters()]
    state = state_of(model, prime_optimizer(optimizer), 0)
    manager.restore(2, state)
    assert state["step"] == 2
    assert [shapes_of(p) for p in model.parameters()] == shapes
    for p in model.parameters():
        assert shapes_of(optimizer.state[p]["exp_avg"]) == shapes_of(p)
    for have, wanted in zip(go_on(model, optimizer, range(2, 4)), want, strict=True):
        torch.testing.assert_close(have, wanted, rtol=1e-4, atol=1e-5)


def training_goes_on_from_one_device() -> None:
    model, optimizer = sharded(seed=9)
    state = state_of(model, prime_optimizer(optimizer), 0)
    CheckpointManager(str(FOLDER / "one_device"), save_interval=1).restore(2, state)
    want = torch.load(FOLDER / "one_device_after.pt")
    for have, wanted in zip(go_on(model, optimizer, range(2, 4)), want, strict=True):
        torch.testing.assert_close(have, wanted, rtol=1e-4, atol=1e-5)


def asynchronous_saves_are_of_the_step() -> None:
    with tempfile.TemporaryDirectory() as folder:
        manager = CheckpointManager(folder, save_interval=1)
        model, optimizer = sharded()
        want = go_on(model, optimizer, range(2))
        assert manager.save_async(2, state_of(model, optimizer, 2))
        go_on(model, optimizer, range(2, 4))
        manager.join()
        state = state_of(model, optimizer, 0)
        manager.restore(2, state)
        for p, wanted in zip(model.parameters(), want, strict=True):
            assert torch.equal(p.detach().cpu(), wanted)


def the_host_reads_each_part_once() -> None:
    mesh = mesh_of(count())
    whole = torch.arange(64.0 * count()).reshape(8 * count(), 8)
    state = {
        "split": xs.mark_sharding(whole.to(XLA), mesh, ("data", None)),
        "same": torch.ones(3, device=XLA),
    }
    read: list[tuple[int, ...]] = []
    original = _XLAC._local_shard

    def recorded(t: torch.Tensor, place: int) -> torch.Tensor:
        part = original(t, place)
        read.append(tuple(part.shape))
        return part

    _XLAC._local_shard = recorded
    try:
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(state, checkpoint_id=folder, planner=SPMDSavePlanner(), no_dist=True)
            # PyTorch's own planner puts the parts together, on the CPU.
            loaded = {"split": torch.zeros_like(whole), "same": torch.zeros(3)}
            dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    finally:
        _XLAC._local_shard = original
    assert sorted(read) == sorted([(8, 8)] * count() + [(3,)]), read
    assert torch.equal(loaded["split"], whole) and torch.equal(loaded["same"], torch.ones(3))


def the_host_holds_one_part_while_it_loads() -> None:
    mesh = mesh_of(count())
    values = [torch.randn(8 * count(), 8 * count()) for _ in range(3)]
    state = {
        str(i): xs.mark_sharding(value.to(XLA), mesh, ("data", None))
        for i, value in enumerate(values)
    }
    held: list[int] = []
    original = PartsInHostMemory.get

    def recorded(self: PartsInHostMemory, *args: Any) -> torch.Tensor:
        data = original(self, *args)
        held.append(self.num_bytes)
        assert self.num_bytes == sum(data.nbytes for _, _, data in self._held.values())
        return data

    with tempfile.TemporaryDirectory() as folder:
        # Each column is in the files of all threads.
        writer = dcp.FileSystemWriter(folder, thread_count=3)
        dcp.save(state, storage_writer=writer, planner=SPMDSavePlanner(), no_dist=True)
        targets = {
            name: xs.mark_sharding(torch.zeros_like(values[0]).to(XLA), mesh, (None, "data"))
            for name in state
        }
        PartsInHostMemory.get = recorded  # type: ignore[method-assign]
        try:
            reader = dcp.FileSystemReader(folder)
            dcp.load(targets, storage_reader=reader, planner=SPMDLoadPlanner(), no_dist=True)
        finally:
            PartsInHostMemory.get = original  # type: ignore[method-assign]
    assert len(held) == 3 * count() ** 2 and max(held) == values[0].nbytes // count()
    for target, value in zip(targets.values(), values, strict=True):
        assert torch.equal(target.global_tensor.cpu(), value)
        assert shapes_of(target) == {(8 * count(), 8)}


def views_and_numbers_are_saved_and_loaded() -> None:
    def state(value: float) -> dict[str, Any]:
        base = torch.full((4, 6), value, device=XLA)
        xs.mark_sharding(base, mesh_of(count()), (None, None))
        number = torch.tensor(value, device=XLA)
        half = torch.full((4,), value, device=XLA, dtype=torch.bfloat16)
        return {"view": base.t()[1:3], "number": number, "half": half, "none": None, "n": [value]}

    with tempfile.TemporaryDirectory() as folder:
        dcp.save(state(2.5), checkpoint_id=folder, planner=SPMDSavePlanner(), no_dist=True)
        loaded = state(0.0)
        dcp.load(loaded, checkpoint_id=folder, planner=SPMDLoadPlanner(), no_dist=True)
    assert loaded["view"].tolist() == [[2.5] * 4] * 2 and loaded["number"].item() == 2.5
    assert loaded["half"].tolist() == [2.5] * 4 and loaded["n"] == [2.5]


def another_models_checkpoint_is_an_error() -> None:
    manager, _ = saved(str(FOLDER / "on_mesh"))
    for model, what in (
        (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), "model.2.weight"),
        (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8), nn.Linear(8, 8)),
         "model.3.weight"),
    ):  # fmt: skip
        model.to(XLA)
        before = copy.deepcopy(model.state_dict())
        state: dict[str, Any] = {"model": model.state_dict()}
        try:
            manager.restore(2, state)
        except ValueError as error:
            assert what in str(error) and "step 2" in str(error), error
        else:
            raise AssertionError(f"no error: {what}")
        for name, value in model.state_dict().items():
            assert torch.equal(value.cpu(), before[name].cpu()), name
    bad = {"step": torch.zeros(1, device=XLA)}
    try:
        manager.restore(2, bad)
    except ValueError as error:
        assert "step: expected a tensor" in str(error), error
    else:
        raise AssertionError("no error: an object for a tensor")


def states_of_the_host_lie_as_their_parameters() -> None:
    model, optimizer = sharded()
    go_on(model, optimizer, range(2))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, file)
    want = go_on(model, optimizer, range(2, 4))
    for where in ("cpu", XLA):
        file.seek(0)
        state = torch.load(file, map_location=where)
        other, its_optimizer = sharded(seed=9)
        before = metrics.counter_value("ReshardData")
        other.load_state_dict(state["model"])
        its_optimizer.load_state_dict(state["optim"])
        if where == "cpu":  # straight to its place
            assert metrics.counter_value("ReshardData") == before
        have = go_on(other, its_optimizer, range(2, 4))
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)
        for p in other.parameters():
            assert shapes_of(p) == {(p.shape[0] // count(), *p.shape[1:])}
            for name in ("exp_avg", "exp_avg_sq"):
                assert shapes_of(its_optimizer.state[p][name]) == shapes_of(p), (where, name)
            assert its_optimizer.state[p]["step"].device.type == where[:3]


def states_of_another_shape_are_whole() -> None:
    model, _ = sharded()
    optimizer = torch.optim.Adafactor(model.parameters())
    go_on(model, optimizer, range(1))
    state = _saving.on_cpu(optimizer.state_dict())
    optimizer.load_state_dict(state)
    weight = next(iter(model.parameters()))
    row = optimizer.state[weight]["row_var"]
    assert row.shape != weight.shape and torch.equal(row.cpu(), state["state"][0]["row_var"])
    go_on(model, optimizer, range(1))


CHECKS = [
    states_of_the_host_lie_as_their_parameters,
    states_of_another_shape_are_whole,
    training_goes_on_on_another_mesh,
    training_goes_on_from_one_device,
    asynchronous_saves_are_of_the_step,
    the_host_reads_each_part_once,
    the_host_holds_one_part_while_it_loads,
    views_and_numbers_are_saved_and_loaded,
    another_models_checkpoint_is_an_error,
]


if __name__ == "__main__":
    xr.use_spmd()
    print(json.dumps({"failures": failures_of(CHECKS, sys.argv[3:])}))
