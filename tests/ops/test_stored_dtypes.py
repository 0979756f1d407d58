"""XLA_USE_BF16 and the like: tensors are kept in other types than they report."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, torch_xla
from torch import nn

x = torch.tensor([1.0, 1.0 + 2**-12, 3.0])
d = torch.tensor([1.0, 1.0 + 2**-12, 1.0 + 2**-30], dtype=torch.float64)
n = torch.tensor([1, 2**33 + 5, -3])
xx, dx, nx = x.to("xla"), d.to("xla"), n.to("xla")
assert (xx.dtype, dx.dtype, nx.dtype) == (torch.float32, torch.float64, torch.int64)
y = xx + 1
text = torch_xla._XLAC._pending_program(0)
for t, want in ((xx, FLOAT), (dx, DOUBLE), (nx, LONG)):
    back = t.cpu()
    assert back.dtype == t.dtype
    reference = {torch.float32: x, torch.float64: d, torch.int64: n}[t.dtype]
    assert torch.equal(back, reference.to(want).to(t.dtype)), (t.dtype, back)
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
assert f"tensor<3x{NAMES[FLOAT]}>" in text and f"-> (tensor<3x{NAMES[FLOAT]}>)" in text, text
assert y.dtype == torch.float32
torch.testing.assert_close(y.cpu(), x + 1, rtol=0.01, atol=0.01)

# A parameter of the program per tensor, all kept alike; what reports bfloat16 is apart from it.
half = torch.ones(3, dtype=torch.bfloat16, device="xla")
assert (half + xx).dtype == torch.float32 and (half + half).dtype == torch.bfloat16
assert (xx.double() + dx).cpu().dtype == torch.float64
assert (xx > 1.5).tolist() == [False, False, True] and xx.argmax().item() == 2
assert abs(xx.sum().item() - 5.0) < 0.01 and (nx[2] * 2).item() == -6
base = torch.zeros(4, device="xla")
base[1:3].add_(2.5)
assert base.tolist() == [0, 2.5, 2.5, 0]
assert torch.arange(5, device="xla").tolist() == [0, 1, 2, 3, 4]
assert torch.full((2,), 7, device="xla").tolist() == [7, 7]
assert torch.randn(3, device="xla").cpu().isfinite().all()
assert torch.embedding(torch.eye(3, device="xla"), torch.tensor([2, 0], device="xla")).tolist() == [
    [0, 0, 1], [1, 0, 0]]

# Operators that need the types as reported: there is no Fourier transform in bfloat16.
wave = torch.tensor([0.0, 1.0, 0.0, -1.0])
torch.testing.assert_close(torch.fft.fft(wave.to("xla")).cpu(), torch.fft.fft(wave))
one = torch.ones(1, device="xla")
assert one.view(torch.int32).item() == 0x3F800000

# An estimate compiles the barrier's own program, donations included.
metrics = torch_xla.debug.metrics
xx.mul_(2)
torch_xla.sync(wait=True)
xx.mul_(3)
estimate = torch_xla.debug.memory.estimate()
assert estimate["alias"] == xx.numel() * torch.empty(0, dtype=FLOAT).element_size(), estimate
compiled = metrics.metric_data("CompileTime")[0]
torch_xla.sync(wait=True)
assert metrics.metric_data("CompileTime")[0] == compiled

layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)]
model = nn.Sequential(*layers).to("xla")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
data, target = torch.randn(4, 1, 8, 8).to("xla"), torch.tensor([0, 1, 2, 0]).to("xla")
losses = []
for _ in range(12):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    losses.append(loss.item())
assert losses[-1] < 0.7 * losses[0], losses
assert all(p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in model.parameters())
assert torch_xla.debug.metrics.executed_fallback_ops() == []
"""

# What the variables make of float32, float64 and int64.
CASES = {
    "XLA_USE_BF16": ("bfloat16", "bfloat16", "int64"),
    "XLA_DOWNCAST_BF16": ("bfloat16", "float32", "int64"),
    "XLA_USE_FP16": ("float16", "float16", "int64"),
    "XLA_DOWNCAST_FP16": ("float16", "float32", "int64"),
    "XLA_USE_32BIT_LONG": ("float32", "float64", "int32"),
}


@pytest.mark.parametrize("variable", CASES)
def test_values_are_stored_as_asked_and_come_back_as_reported(variable):
    names = zip(("FLOAT", "DOUBLE", "LONG"), CASES[variable], strict=True)
    head = "import torch\n" + "".join(f"{name} = torch.{dtype}\n" for name, dtype in names)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", head + PROGRAM],
        env={**os.environ, variable: "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
