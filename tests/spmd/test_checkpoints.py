"""Checkpoints of tensors on a mesh: read on another mesh, on one device, and written there."""

from __future__ import annotations

import pathlib

import checkpoint_programs
import pytest
import torch
from processes import json_of_program

from torch_xla.experimental.distributed_checkpoint import CheckpointManager, prime_optimizer

PROGRAM = pathlib.Path(checkpoint_programs.__file__)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", params=[2, 4])
def outcome(request, tmp_path_factory):
    """What the program on so many devices says, and its folder."""
    folder = tmp_path_factory.mktemp("checkpoints")
    model, optimizer = checkpoint_programs.fresh()
    checkpoint_programs.go_on(model, optimizer, range(2))
    manager = CheckpointManager(str(folder / "one_device"), save_interval=1)
    manager.save(2, checkpoint_programs.state_of(model, optimizer, 2))
    after = checkpoint_programs.go_on(model, optimizer, range(2, 4))
    torch.save(after, folder / "one_device_after.pt")
    count = str(request.param)
    result = json_of_program(PROGRAM, count, str(folder), CPU_NUM_DEVICES=count)
    return result["failures"], folder, after


@pytest.mark.parametrize("claim", [check.__name__ for check in checkpoint_programs.CHECKS])
def test_on_a_mesh(outcome, claim):
    failure = outcome[0].get(claim)
    assert failure is None, failure


def test_one_device_goes_on_from_a_mesh(outcome):
    _, folder, want = outcome
    model, optimizer = checkpoint_programs.fresh(seed=9)
    state = checkpoint_programs.state_of(model, prime_optimizer(optimizer), 0)
    CheckpointManager(str(folder / "on_mesh"), save_interval=1).restore(2, state)
    got = checkpoint_programs.go_on(model, optimizer, range(2, 4))
    for have, wanted in zip(got, want, strict=True):
        torch.testing.assert_close(have, wanted, rtol=1e-4, atol=1e-5)
