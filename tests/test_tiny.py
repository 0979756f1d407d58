"""A smoke test in seconds: if one of these fails, look no further."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_xla
from torch_xla.debug import metrics


def test_arithmetic(device):
    a = torch.arange(6.0, device=device).view(2, 3)
    assert (a @ a.t() + 1).tolist() == [[6, 15], [15, 51]]


def test_upload_and_download_keep_values(device):
    values = torch.randn(3, 4)
    assert torch.equal(values.to(device).cpu(), values)


def test_print_shows_values_and_device(device):
    assert repr(torch.arange(3, device=device)) == "tensor([0, 1, 2], device='xla:0')"


def test_item_and_bool(device):
    assert torch.tensor(3.5, device=device).item() == 3.5
    assert bool(torch.tensor(True, device=device))


def test_nothing_runs_before_the_barrier(device):
    a = torch.ones(2, device=device) + 1
    before = metrics.metric_data("ExecuteTime")
    torch_xla.sync(wait=True)
    after = metrics.metric_data("ExecuteTime")
    assert before is None
    assert after is not None and after[0] == 1
    assert a.tolist() == [2, 2]


def test_write_through_view(device):
    a = torch.zeros(2, 2, device=device)
    a[0].add_(1)
    a.t()[1] = 5
    assert a.tolist() == [[1, 5], [0, 5]]


def test_gradient(device):
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4]


def test_same_step_compiles_once(device):
    x = torch.zeros(3, device=device)
    for _ in range(4):
        x = x * 2 + 1
        torch_xla.sync()
    assert metrics.counter_value("UncachedCompile") <= 2
    assert x.tolist() == [15, 15, 15]


def test_training_lowers_the_loss(device):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    data = torch.randn(32, 4, device=device)
    target = data.sum(dim=1, keepdim=True)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
    first, last = torch.stack(losses)[[0, -1]].tolist()
    assert last < first / 2
    assert metrics.executed_fallback_ops() == []


def test_convolution_agrees_with_the_cpu(device):
    layer = nn.Conv2d(3, 4, kernel_size=3, padding=1)
    image = torch.randn(2, 3, 8, 8)
    expected = layer(image)
    torch.testing.assert_close(layer.to(device)(image.to(device)).cpu(), expected)


def test_random_numbers_repeat(device):
    torch.manual_seed(1)
    first = torch.rand(5, device=device)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(5, device=device), first)


def test_cpu_tensor_is_refused_by_name(device):
    with pytest.raises(RuntimeError, match=r"Input tensor is not an XLA tensor: torch.FloatTensor"):
        torch.ones(2, device=device) + torch.ones(2)
