"""`torch.compile(backend="openxla")`."""

from __future__ import annotations

import pytest
import torch
from counts import counted

import torch_xla
from torch_xla.core import dynamo_bridge


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    ).to("xla")


def test_inference_is_one_launch_per_call():
    module = model().eval()
    compiled = torch.compile(module, backend="openxla")
    x = torch.randn(4, 6, device="xla")
    with torch.no_grad():
        want = module(x).cpu()
        compiled(x)
        with counted() as counts:
            outs = [compiled(x) for _ in range(5)]
            assert torch_xla._XLAC._pending_program(0).count("stablehlo.dot_general") == 0
        assert (counts.compiled, counts.executed) == (0, 5)
    for out in outs:
        torch.testing.assert_close(out.cpu(), want)


def test_training_is_as_without():
    x = torch.randn(4, 6, device="xla")

    def losses(compile):
        module = model()
        run = torch.compile(module, backend="openxla") if compile else module
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        out = []
        for _ in range(4):
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()
            out.append(loss.item())
        return out

    assert losses(True) == pytest.approx(losses(False), rel=1e-4)


def test_running_statistics_are_updated():
    module = torch.nn.BatchNorm1d(3).to("xla")
    compiled = torch.compile(module, backend="openxla")
    reference = torch.nn.BatchNorm1d(3)
    for i in range(3):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(i))
        compiled(x.to("xla"))
        reference(x)
    torch.testing.assert_close(module.running_mean.cpu(), reference.running_mean)
    torch.testing.assert_close(module.running_var.cpu(), reference.running_var)


def test_random_numbers_are_new_in_each_call():
    compiled = torch.compile(lambda t: torch.nn.functional.dropout(t, 0.5), backend="openxla")
    x = torch.ones(64, device="xla")
    assert not torch.equal(compiled(x).cpu(), compiled(x).cpu())


def test_another_size_is_another_program():
    compiled = torch.compile(lambda t: t.sin() + 1, backend="openxla", dynamic=False)
    for size in (3, 4, 3, 4):
        x = torch.randn(size, device="xla")
        torch.testing.assert_close(compiled(x).cpu(), x.cpu().sin() + 1)


def test_first_size_that_asks_for_another_recording_is_reported(caplog):
    compiled = torch.compile(lambda t: t.sin() + 1, backend="openxla", dynamic=True)
    with caplog.at_level("INFO", logger="torch_xla"):
        for size in (3, 4, 3, 5):
            compiled(torch.ones(size, device="xla"))
    reports = [r for r in caplog.records if "for each size" in r.getMessage()]
    assert [r.levelname for r in reports] == ["WARNING", "INFO"]
    assert "[4] asks for another recording than [3] (2 for this graph" in reports[0].getMessage()
    assert "test_dynamo.py:" in reports[0].getMessage()


def test_graph_that_needs_values_runs_all_the_same():
    @torch.compile(backend="openxla")
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    for sign in (1.0, -1.0):
        x = torch.full((3,), sign, device="xla")
        assert f(x).tolist() == [2 * sign + sign] * 3


def test_extracted_graph_runs_as_the_module():
    class Two(torch.nn.Module):
        def forward(self, a, b):
            return a @ b, None, a.sum()

    graph = torch.fx.symbolic_trace(Two())
    a, b = torch.randn(2, 3, device="xla"), torch.randn(3, 4, device="xla")
    run = dynamo_bridge.extract_compiled_graph(graph, (a, b))
    product, nothing, total = run(a, b)
    assert nothing is None
    torch.testing.assert_close(product.cpu(), a.cpu() @ b.cpu())
    torch.testing.assert_close(total.cpu(), a.cpu().sum())


def test_cond_inside_of_a_compiled_function():
    @torch.compile(backend="openxla", fullgraph=True)
    def f(flag, x):
        return torch.cond(flag, lambda t: t + 1, lambda t: t - 1, (x,))

    x = torch.zeros(2, device="xla")
    assert f(torch.tensor(True, device="xla"), x).tolist() == [1, 1]
    assert f(torch.tensor(False, device="xla"), x).tolist() == [-1, -1]


def test_extracted_graph_writes_moves_and_nests():
    class Writes(torch.nn.Module):
        def forward(self, a, n, b):
            a.add_(b)
            return [a * n, None, {"sum": a.sum()}]

    class Flat(torch.nn.Module):
        def forward(self, a, b):
            b.mul_(2)
            return [a + b]

    a, b = torch.ones(2, device="xla"), torch.full((2,), 3.0)
    run = dynamo_bridge.extract_compiled_graph(Writes(), (a, 2, b))
    for factor, want in ((2, 8), (2, 14), (5, 50)):
        product, nothing, rest = run(a, factor, b)
        assert product.tolist() == [want] * 2 and nothing is None
        assert rest["sum"].item() == 2 * want / factor
    flat = dynamo_bridge.extract_compiled_graph(Flat(), (a, a.clone()))
    c = torch.ones(2, device="xla")
    result = flat(a, c)
    assert isinstance(result, list) and result[0].tolist() == [12, 12] and c.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match=r"expected tensor 1 to be f32\[2\], got f32\[3\]"):
        flat(a, torch.ones(3, device="xla"))
    assert flat(a, c)[0].tolist() == [14, 14]
