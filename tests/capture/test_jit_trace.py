"""`torch.jit.trace` of modules on xla writes down what it writes down on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

X = torch.randn(2, 3, 8, 8)

MODULES = {
    "conv1d": (nn.Conv1d(8, 4, 3), X[:, 0]),
    "conv2d": (nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), X),
    "conv3d": (nn.Conv3d(1, 2, 2), X[:, None]),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, 3, output_padding=1, stride=2), X),
    "grouped": (nn.Conv2d(3, 6, 3, groups=3, dilation=2), X),
    "network": (
        nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 2),
        ),
        X,
    ),
}


def calls(traced: torch.jit.ScriptModule) -> list[str]:
    return [node.kind() for node in traced.inlined_graph.nodes() if node.kind().startswith("aten")]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*is deprecated")
@pytest.mark.parametrize("name", MODULES)
def test_traced_module_is_that_of_the_cpu(name):
    on_cpu, x = MODULES[name]
    on_cpu = copy.deepcopy(on_cpu).eval()
    on_device = copy.deepcopy(on_cpu).to("xla")
    want = torch.jit.trace(on_cpu, x)
    traced = torch.jit.trace(on_device, x.to("xla"))
    assert calls(traced) == calls(want)
    # Of another batch than the one that was traced, and with gradients.
    other = torch.cat([x, x + 1])
    got = traced(other.to("xla"))
    torch.testing.assert_close(got.detach().cpu(), want(other).detach(), rtol=1e-4, atol=1e-4)
    got.sum().backward()
    want(other).sum().backward()
    for theirs, ours in zip(on_cpu.parameters(), on_device.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-3)
