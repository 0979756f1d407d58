"""Gradient scaling skips the steps that overflow, as PyTorch's does, without asking the host."""

from __future__ import annotations

import copy

import pytest
import torch
from counts import counted
from torch import nn

import torch_xla
from torch_xla.amp import GradScaler, syncfree
from torch_xla.debug import metrics

SYNC_FREE = [
    (syncfree.SGD, torch.optim.SGD, {"lr": 0.1}),
    (syncfree.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (syncfree.Adam, torch.optim.Adam, {"lr": 0.1}),
    (syncfree.Adam, torch.optim.Adam, {"lr": 0.1, "amsgrad": True}),
    (syncfree.AdamW, torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
]
# The third step overflows.
FACTORS = [1.0, 0.5, float("inf"), 2.0, 1.0]


def run(optimizer, scaler, weight, x, factors):
    """Steps with the loss of each multiplied by one of `factors`."""
    for factor in factors:
        optimizer.zero_grad()
        loss = ((x @ weight) ** 2).sum() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch_xla.sync()


def compare(make, make_reference, factors=FACTORS, scaler=GradScaler):
    torch.manual_seed(0)
    start, x = torch.randn(3, 2), torch.randn(4, 3)
    want = nn.Parameter(start.clone())
    reference_scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    run(make_reference([want]), reference_scaler, want, x, factors)
    got = nn.Parameter(start.to("xla"))
    optimizer = make([got])
    device_scaler = scaler(init_scale=8.0, growth_interval=2)
    run(optimizer, device_scaler, got, x.to("xla"), factors)
    torch.testing.assert_close(got.detach().cpu(), want.detach())
    assert device_scaler.get_scale() == reference_scaler.get_scale()
    assert device_scaler._get_growth_tracker() == reference_scaler._get_growth_tracker()


@pytest.mark.parametrize(("ours", "torchs", "args"), SYNC_FREE)
def test_sync_free_optimizers_step_and_skip_as_pytorch(ours, torchs, args):
    compare(lambda p: ours(p, **args), lambda p: torchs(p, **args))


@pytest.mark.parametrize(("ours", "torchs", "args"), SYNC_FREE)
def test_a_first_step_that_overflows_changes_nothing(ours, torchs, args):
    factors = [float("nan"), float("inf"), 1.0, 1.0]
    compare(lambda p: ours(p, **args), lambda p: torchs(p, **args), factors)


@pytest.mark.parametrize(("ours", "torchs", "args"), SYNC_FREE)
def test_steps_read_nothing(ours, torchs, args):
    del torchs
    x = torch.randn(4, 3, device="xla")
    weight = nn.Parameter(torch.randn(3, 2, device="xla"))
    scaler = GradScaler()
    with counted() as counts:
        run(ours([weight], **args), scaler, weight, x, FACTORS)
    assert counts.executed == len(FACTORS)
    assert metrics.counter_value("aten::_local_scalar_dense") is None
    assert metrics.metric_data("TransferFromDeviceTime") is None


OTHERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    (torch.optim.Adam, {"lr": 0.1}),
    (torch.optim.AdamW, {"lr": 0.1, "foreach": False}),
    (torch.optim.NAdam, {"lr": 0.1}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    (torch.optim.Adagrad, {"lr": 0.1}),
]


@pytest.mark.parametrize(("optimizer", "args"), OTHERS)
def test_other_optimizers_step_and_skip_as_pytorch(optimizer, args):
    for factors in (FACTORS, [float("nan"), 1.0, float("inf"), 1.0]):
        compare(lambda p: optimizer(p, **args), lambda p: optimizer(p, **args), factors)


@pytest.mark.parametrize(("optimizer", "args"), OTHERS[:-1])
def test_other_optimizers_read_only_while_they_make_their_state(optimizer, args):
    x = torch.randn(4, 3, device="xla")
    weight = nn.Parameter(torch.randn(3, 2, device="xla"))
    made, scaler = optimizer([weight], **args), GradScaler()
    run(made, scaler, weight, x, [1.0])
    metrics.clear_all()
    with counted() as counts:
        run(made, scaler, weight, x, [1.0, float("inf"), 1.0])
    assert counts.executed == 3
    assert metrics.metric_data("TransferFromDeviceTime") is None


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_pytorchs_scaler_with_fused_optimizers_reads_nothing(optimizer):
    def pytorchs(**args):
        return torch.amp.GradScaler("xla", **args)

    compare(
        lambda p: optimizer(p, lr=0.1, fused=True), lambda p: optimizer(p, lr=0.1), scaler=pytorchs
    )
    x = torch.randn(4, 3, device="xla")
    weight = nn.Parameter(torch.randn(3, 2, device="xla"))
    fused = optimizer([weight], lr=0.1, fused=True)
    metrics.clear_all()
    run(fused, torch.amp.GradScaler("xla"), weight, x, FACTORS)
    assert metrics.metric_data("TransferFromDeviceTime") is None


def test_unscale_and_clip_before_the_step():
    x = torch.randn(4, 3)

    def train(weight, data, scaler, optimizer):
        for factor in FACTORS:
            optimizer.zero_grad()
            scaler.scale(((data @ weight) ** 2).sum() * factor).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([weight], 0.5)
            scaler.step(optimizer)
            scaler.update()
            torch_xla.sync()
        return weight.detach().cpu()

    start = torch.randn(3, 2)
    want = nn.Parameter(start.clone())
    got = nn.Parameter(start.to("xla"))
    expected = train(want, x, torch.amp.GradScaler("cpu"), torch.optim.SGD([want], 0.1))
    metrics.clear_all()
    result = train(got, x.to("xla"), GradScaler(), syncfree.SGD([got], 0.1))
    torch.testing.assert_close(result, expected)
    assert metrics.metric_data("TransferFromDeviceTime")[0] == 1


def test_found_inf_decides_the_step(device):
    for make in (syncfree.SGD, syncfree.Adam, syncfree.AdamW):
        weight = nn.Parameter(torch.ones(2, device=device))
        optimizer = make([weight], lr=0.5)
        weight.grad = torch.ones(2, device=device)
        with counted() as counts:
            optimizer.step(found_inf=torch.tensor(1.0, device=device))
            torch_xla.sync()
        assert counts.executed == 1
        assert weight.tolist() == [1, 1]
        optimizer.step(found_inf=torch.tensor([0.0], device=device))
        assert weight.tolist() != [1, 1]
        before = weight.tolist()
        assert optimizer.step(lambda: 3.0) == 3.0
        assert weight.tolist() != before


def test_hooks_of_a_sync_free_optimizer_run_once(device):
    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)  # PyTorch's class gets its hooks
    weight = nn.Parameter(torch.ones(2, device=device))
    optimizer = syncfree.SGD([weight], lr=0.5)
    weight.grad = torch.ones(2, device=device)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.step()
    assert calls == ["pre", "post"]
    assert weight.requires_grad and weight.grad_fn is None


def test_unfused_sync_free_optimizers_are_refused(device):
    weight = nn.Parameter(torch.ones(2, device=device))
    with pytest.raises(ValueError, match="only the fused form"):
        syncfree.Adam([weight], foreach=True)


def test_state_of_scaler_and_optimizer_round_trips(device):
    weight = nn.Parameter(torch.ones(3, 2, device=device))
    x = torch.ones(4, 3, device=device)
    optimizer, scaler = syncfree.Adam([weight], lr=0.1), GradScaler(init_scale=4.0)
    run(optimizer, scaler, weight, x, FACTORS)
    states = copy.deepcopy((optimizer.state_dict(), scaler.state_dict()))
    saved = weight.detach().clone()
    run(optimizer, scaler, weight, x, [1.0, 1.0])
    again, again_scaler = syncfree.Adam([weight], lr=0.1), GradScaler()
    want = weight.detach().cpu()
    with torch.no_grad():
        weight.copy_(saved)
    again.load_state_dict(states[0])
    again_scaler.load_state_dict(states[1])
    run(again, again_scaler, weight, x, [1.0, 1.0])
    assert torch.equal(weight.detach().cpu(), want)


def test_disabled_scaler_does_nothing(device):
    weight = nn.Parameter(torch.ones(2, device=device))
    scaler = GradScaler(enabled=False)
    assert scaler.scale(weight) is weight
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.ones(2, device=device)
    scaler.step(optimizer)
    assert weight.tolist() == [0, 0] and scaler.get_scale() == 1.0
