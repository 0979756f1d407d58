"""Checkpoints by step: when, where, which are kept, and that training goes on from them."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
import torch
from processes import run_in_process
from torch import nn

import torch_xla
from torch_xla import _XLAC
from torch_xla.experimental.distributed_checkpoint import CheckpointManager, prime_optimizer

pytestmark = pytest.mark.filterwarnings("ignore")


def make(device):
    torch.manual_seed(2)
    model = nn.Linear(3, 2).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def step(model, optimizer, number):
    optimizer.zero_grad()
    model(torch.full((1, 3), float(number), device="xla")).square().sum().backward()
    optimizer.step()
    torch_xla.sync()


def state_of(model, optimizer, number):
    return {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": number}


@pytest.mark.parametrize("save", ["save", "save_async"])
def test_training_goes_on_where_it_was(device, tmp_path, save):
    manager = CheckpointManager(str(tmp_path / "ckpt"), save_interval=2)
    model, optimizer = make(device)
    saved = []
    for number in range(1, 5):
        step(model, optimizer, number)
        saved.append(getattr(manager, save)(number, state_of(model, optimizer, number)))
    manager.join()
    assert saved == [False, True, False, True] and manager.all_steps() == [2, 4]
    want = model.weight.detach().cpu()

    again, other = make(device)
    prime_optimizer(other)
    state = state_of(again, other, 0)
    manager.restore(2, state)
    assert state["step"] == 2
    other.load_state_dict(state["optim"])
    for number in (3, 4):
        step(again, other, number)
    assert torch.equal(again.weight.detach().cpu(), want)
    assert again.weight.device == device


def test_old_steps_go_and_force_saves(device, tmp_path):
    manager = CheckpointManager(str(tmp_path), save_interval=10, max_to_keep=2)
    for number in range(4):
        assert manager.save(number, {"x": torch.ones(2, device=device) * number}, force=True)
    assert manager.all_steps() == [2, 3]
    state = {"x": torch.zeros(2, device=device)}
    manager.restore(3, state)
    assert state["x"].tolist() == [3, 3]
    with pytest.raises(ValueError, match="no step 0"):
        manager.restore(0, state)


def test_what_a_killed_writer_left_is_no_step(tmp_path):
    manager = CheckpointManager(str(tmp_path), save_interval=1)
    (tmp_path / "7").mkdir()
    assert manager.all_steps() == []
    with pytest.raises(ValueError, match="positive save_interval"):
        CheckpointManager(str(tmp_path), save_interval=0)


def test_failure_of_an_asynchronous_save_shows(device, tmp_path):
    manager = CheckpointManager(str(tmp_path / "x"), save_interval=1)
    shutil.rmtree(tmp_path / "x")
    (tmp_path / "x").write_text("in the way")
    manager.save_async(1, {"x": torch.ones(1, device=device)})
    with pytest.raises(BaseException, match="Not a directory"):
        manager.join()
    manager.join()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_writer_that_is_killed_leaves_no_step(device, tmp_path, is_first):
    program = f"""
        import os, torch
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch_xla.experimental.distributed_checkpoint import CheckpointManager
        manager = CheckpointManager({str(tmp_path)!r}, save_interval=1)
        state = {{"x": torch.ones(4, device="xla")}}
        if not {is_first}:
            manager.save(1, state)
        FileSystemWriter.finish = lambda *args, **kwargs: os._exit(9)  # before the last file
        if os.fork() == 0:
            manager.save(1, {{"x": torch.zeros(4)}})
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
        """
    run_in_process(program)
    manager = CheckpointManager(str(tmp_path), save_interval=1, max_to_keep=1)
    assert manager.all_steps() == ([] if is_first else [1])
    state = {"x": torch.zeros(4, device=device)}
    if not is_first:
        manager.restore(1, state)
        assert state["x"].tolist() == [1] * 4
    manager.save(2, state)
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_a_step_whose_new_name_is_missing_is_the_one_before(device, tmp_path):
    manager = CheckpointManager(str(tmp_path), save_interval=1)
    manager.save(3, {"x": torch.ones(2, device=device)})
    (tmp_path / "3").rename(tmp_path / "3.replaced")  # killed between the two
    state = {"x": torch.zeros(2, device=device)}
    assert manager.all_steps() == [3]
    manager.restore(3, state)
    assert state["x"].tolist() == [1, 1]
    manager.save(3, {"x": torch.full((2,), 5.0)})
    manager.restore(3, state)
    assert state["x"].tolist() == [5, 5]
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_a_save_in_the_background_is_no_barrier(device, tmp_path):
    manager = CheckpointManager(str(tmp_path), save_interval=1)
    x = torch.ones(2, device=device)
    manager.save_async(1, {"x": x})
    before = _XLAC._computation_stats()[1]
    y = x + 1
    manager.join()
    assert _XLAC._computation_stats()[1] == before
    assert y.tolist() == [2, 2]


def test_a_job_that_is_told_to_end_saves_its_step(tmp_path):
    program = f"""
        import os, signal, torch
        from torch_xla.experimental.distributed_checkpoint import CheckpointManager
        manager = CheckpointManager({str(tmp_path)!r}, save_interval=1000)
        x = torch.zeros(2, device="xla")
        for step in range(1, 100):
            x += 1
            if step == 7:
                os.kill(os.getpid(), signal.SIGTERM)
            if manager.save(step, {{"x": x}}):
                print(step, x.tolist())
            if manager.reached_preemption(step):
                break
        print(manager.all_steps())
        """
    assert run_in_process(program) == "7 [7.0, 7.0]\n[7]"


def test_preemption_asks_for_a_save(tmp_path):
    program = f"""
        import os, signal, torch
        from torch_xla.experimental.distributed_checkpoint import CheckpointManager
        manager = CheckpointManager({str(tmp_path)!r}, save_interval=100)
        print(manager.should_save(3), manager.reached_preemption(3))
        os.kill(os.getpid(), signal.SIGTERM)
        print(manager.should_save(3), manager.reached_preemption(3))
        """
    assert run_in_process(program) == "False False\nTrue True"


def test_preemption_is_not_watched_unless_asked(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    CheckpointManager(str(tmp_path), save_interval=1, chkpt_on_preemption=False)
    assert signal.getsignal(signal.SIGTERM) is before and os.getpid()


def test_priming_makes_state_and_changes_nothing(device):
    model, optimizer = make(device)
    before = model.weight.detach().cpu()
    assert prime_optimizer(optimizer) is optimizer
    assert torch.equal(model.weight.detach().cpu(), before)
    assert optimizer.param_groups[0]["lr"] == 0.1 and model.weight.grad is None
    assert len(optimizer.state) == 2
