"""Activation checkpointing saves memory, in torch's spelling and in ours, and changes no result."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
from models import MLP

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.utils.checkpoint import checkpoint as xla_checkpoint

LAYERS = 8
WIDTH = 64
BATCH = 2048


def make(device):
    torch.manual_seed(0)
    return torch.nn.ModuleList(MLP((WIDTH, WIDTH, WIDTH)) for _ in range(LAYERS)).to(device)


def reentrant(layer, x):
    return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True)


def not_reentrant(layer, x):
    return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)


def train(call, device="xla"):
    """The gradients, and the temporary memory of the program that computed them."""
    layers = make(device)
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).to(device)
    x.requires_grad_()
    torch_xla.sync()
    y = x
    for layer in layers:
        y = call(layer, torch.sigmoid(y))
    y.sum().backward()
    grads = [x.grad, *(p.grad for p in layers.parameters())]
    if device == "cpu":
        return grads, 0
    torch_xla.sync(wait=True)
    return grads, torch_xla._XLAC._last_program_memory()["temp_size_in_bytes"]


@pytest.mark.parametrize("checkpoint", [reentrant, not_reentrant, xla_checkpoint])
def test_checkpointing_saves_memory_and_changes_nothing(checkpoint):
    want, _ = train(lambda layer, x: layer(x), "cpu")
    _, plain = train(lambda layer, x: layer(x))
    got, saved = train(checkpoint)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-3, atol=1e-4)
    # Of each layer its input stays, in the place of that and of what the ReLU gave. Without an
    # order of the recomputations, or with copies made before their time, it takes nearly as much.
    assert saved < 0.6 * plain


def test_dropout_is_computed_again_with_the_same_mask():
    x = torch.ones(64, device="xla", requires_grad=True)
    y = not_reentrant(lambda t: torch.nn.functional.dropout(t, 0.5) * t, x)
    y.sum().backward()
    # d/dt (mask * t * t) = 2 * mask * t, and y = mask * t * t.
    assert torch.equal(x.grad.cpu(), 2 * y.detach().cpu())


def test_checkpointing_on_the_cpu_is_as_before():
    x = torch.ones(3, requires_grad=True)
    not_reentrant(lambda t: t * t, x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_optimization_barrier_changes_no_value():
    x, y = torch.arange(3.0, device="xla"), torch.tensor([2], device="xla")
    xm.optimization_barrier_([x, y])
    assert (x.tolist(), y.tolist()) == ([0, 1, 2], [2])
