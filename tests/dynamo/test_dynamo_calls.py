"""Calls of graphs that `torch.compile(backend="openxla")` made: they skip recording, and are right
whatever happened to their arguments."""

from __future__ import annotations

import random

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


def compiled_layer():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).to("xla")
    return layer, torch.compile(layer, backend="openxla")


def check_call(layer, compiled, x):
    """That a call computes with the parameters as they are, in one launch without recording."""
    want = torch.nn.functional.linear(
        x.cpu(), layer.weight.detach().cpu(), layer.bias.detach().cpu()
    )
    torch_xla.sync()
    with counted() as counts:
        got = compiled(x)
        assert "linear" not in torch_xla._XLAC._pending_graph(0, "text")
    assert counts.executed == 1
    torch.testing.assert_close(got.detach().cpu(), want)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_call_sees_what_became_of_parameters(mode):
    layer, compiled = compiled_layer()
    x = torch.randn(4, 3).to("xla")
    others = torch.nn.Linear(3, 2).state_dict()
    with mode():
        for _ in range(3):
            check_call(layer, compiled, x)
        with torch.no_grad():
            layer.weight.add_(1)
        check_call(layer, compiled, x)
        with torch.no_grad():
            layer.weight[0, 1] = 7
            layer.bias.view(2, 1)[1] = 5
        check_call(layer, compiled, x)
        layer.load_state_dict(others)
        check_call(layer, compiled, x)
        with torch.inference_mode(False):
            layer.weight.data = torch.ones(2, 3, device="xla")
        check_call(layer, compiled, x)
        with torch.inference_mode(False):
            layer.bias = torch.nn.Parameter(torch.full((2,), 3.0, device="xla"))
        check_call(layer, compiled, x)
        check_call(layer, compiled, torch.randn(5, 3).to("xla"))
        check_call(layer, compiled, x)


def test_call_with_arguments_still_to_be_computed():
    layer, compiled = compiled_layer()
    x = torch.randn(4, 3).to("xla")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        layer.weight.mul_(2)
        y = x + 1
        want = torch.nn.functional.linear(y.cpu(), layer.weight.cpu(), layer.bias.cpu())
        torch.testing.assert_close(compiled(x + 1).cpu(), want)
        torch.testing.assert_close(
            compiled(compiled(y).new_zeros(4, 3)).cpu(), layer.bias.cpu().expand(4, 2)
        )


def compiles(call, count=4):
    """Of each call, with what it made still alive until the next; nothing is computed before, and
    no program is there."""
    torch_xla._XLAC._clear_compilation_cache()
    found = []
    for i in range(count):
        before = torch_xla._XLAC._computation_stats()[0]
        results = call(i)
        found.append(torch_xla._XLAC._computation_stats()[0] - before)
        assert results is not None
    return found


def test_pending_arguments_compile_nothing_new():
    layer, compiled = compiled_layer()
    x = torch.randn(4, 3).to("xla")
    with torch.no_grad():
        compiled(x)
        assert compiles(lambda i: compiled(x * (i + 2.5))) == [2, 0, 0, 0]
        held = [x * (i + 2.5) for i in range(4)]
        assert compiles(lambda i: compiled(held[i])) == [2, 0, 0, 0]
        got = compiled(held[3] + held[2])
    want = layer(torch.add(held[3], held[2]))
    torch.testing.assert_close(got.cpu(), want.detach().cpu())


def test_a_call_with_pending_arguments_knows_the_program_of_those_without():
    layer, compiled = compiled_layer()
    x = torch.randn(4, 3).to("xla")
    torch_xla.sync()
    with torch.no_grad():
        calls = [lambda: x, lambda: x * 2.5, lambda: x, lambda: x * 3.5, lambda: x - layer.bias[0]]
        assert compiles(lambda i: compiled(calls[i]()), 5) == [1, 1, 0, 0, 1]


def test_pending_arguments_of_bridged_graphs_and_of_compiled_functions():
    x = torch.randn(4, 3).to("xla")
    torch_xla.sync()
    relu = dynamo_bridge.extract_compiled_graph(torch.fx.symbolic_trace(torch.nn.ReLU()), (x,))
    assert compiles(lambda i: relu(x - (i + 2.5))) == [2, 0, 0, 0]
    double = torch_xla.compile(lambda t: t * 2 + x)
    assert compiles(lambda i: double(x - (i + 2.5))) == [2, 0, 0, 0]


def test_parameters_that_an_optimizer_has_still_to_update_compile_nothing_new():
    def train(device):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2).to(device)
        model = torch.compile(layer, backend="openxla") if device == "xla" else layer
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.3)
        x = torch.randn(4, 3).to(device)
        losses = []

        def step(i):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            return losses

        compiled = compiles(step, 6)
        return [loss.cpu() for loss in losses], compiled

    want, _ = train("cpu")
    got, compiled = train("xla")
    torch.testing.assert_close(got, want)
    assert compiled[3:] == [0, 0, 0]


def test_results_of_calls_are_arguments_of_calls_and_can_be_written():
    compiled = torch.compile(lambda a: a * 2 + 1, backend="openxla")
    x = torch.zeros(3, device="xla")
    torch_xla.sync()
    kept = []
    for _ in range(4):
        x = compiled(x)
        kept.append(x)
    kept[1].add_(100)
    kept[2][0] = -1
    assert [t.tolist() for t in kept] == [[1] * 3, [103] * 3, [-1, 7, 7], [15] * 3]


def test_one_tensor_in_two_places():
    class Sum(torch.nn.Module):
        def forward(self, a, b):
            return (a * 10 + b,)

    a, b = (torch.full((2,), v, device="xla") for v in (1.0, 2.0))
    torch_xla.sync()
    run = dynamo_bridge.extract_compiled_graph(Sum(), (a, b))
    for first, second, want in (
        (a, b, 12),
        (a, b, 12),
        (a, a, 11),
        (b, b, 22),
        (a, a[:], 11),
        (b, a, 21),
    ):
        assert run(first, second)[0].tolist() == [want] * 2


def test_calls_after_the_executables_are_dropped_or_flags_change():
    compiled = torch.compile(lambda a: a + 1, backend="openxla")
    x = torch.zeros(2, device="xla")
    torch_xla.sync()
    compiled(x)
    compiled(x)
    torch_xla.runtime.clear_computation_cache()
    with counted() as counts:
        assert compiled(x).tolist() == [1, 1]
    assert counts.executed == 1
    compiles = torch_xla.debug.metrics.counter_value("UncachedCompile") or 0
    torch_xla.set_custom_compile_options({"xla_cpu_enable_fast_math": True})
    try:
        assert compiled(x).tolist() == [1, 1]
    finally:
        torch_xla.set_custom_compile_options({})
    assert (torch_xla.debug.metrics.counter_value("UncachedCompile") or 0) == compiles + 1


def test_calls_are_explained_and_forbidden_like_others(tmp_path):
    compiled = torch.compile(lambda a: a + 1, backend="openxla")
    x = torch.zeros(2, device="xla")
    torch_xla.sync()
    for _ in range(3):
        compiled(x)
    settings = torch_xla.settings
    settings.pt_xla_debug_file, settings.pt_xla_debug_level = str(tmp_path / "log"), 2
    try:
        compiled(x)
    finally:
        settings.pt_xla_debug_level, settings.pt_xla_debug_file = 0, ""
    assert "a graph of torch.compile was called" in (tmp_path / "log").read_text()
    with pytest.raises(RuntimeError, match="full_graph=True"):
        torch_xla.compile(lambda: compiled(x), full_graph=True)()
    assert compiled(x).tolist() == [1, 1]


def test_threads_call_one_graph_with_their_own_tensors():
    import threading

    class Twice(torch.nn.Module):
        def forward(self, a):
            return (a * 2,)

    tensors = [torch.full((2,), float(i), device="xla") for i in range(4)]
    torch_xla.sync()
    run = dynamo_bridge.extract_compiled_graph(Twice(), (tensors[0],))
    wrong = []

    def work(i):
        for _ in range(50):
            if run(tensors[i])[0].tolist() != [2.0 * i] * 2:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("seed", range(4))
def test_calls_between_everything_that_changes_tensors(seed):
    """Of the last call's tensors nothing is looked at, as long as nothing was written."""

    class Digits(torch.nn.Module):
        def forward(self, a, b, c):
            return (a * 100 + b * 10 + c,)

    def fresh():
        cpu = torch.full((2,), float(draw.randrange(10)))
        return [cpu, cpu.to("xla")]

    draw = random.Random(seed)
    pool = [fresh() for _ in range(4)]
    run = dynamo_bridge.extract_compiled_graph(Digits(), [pair[1] for pair in pool[:3]])
    changes = {
        "nothing": lambda pair: None,
        "new": lambda pair: pair.__setitem__(slice(None), fresh()),
        "write": lambda pair: [t.add_(1) for t in pair],
        "write a part": lambda pair: [t[1:].mul_(2) for t in pair],
        "fill": lambda pair: [t.copy_(torch.ones(2)) for t in pair],
        "data": lambda pair: setattr(pair[1], "data", pair[0].fill_(3).to("xla")),
        "set_": lambda pair: pair[1].set_(pair[0].fill_(4).to("xla")),
        "view": lambda pair: pair.__setitem__(slice(None), [t[:] for t in pair]),
        "pending": lambda pair: pair.__setitem__(slice(None), [t + 1 for t in pair]),
        "sync": lambda pair: torch_xla.sync(),
        "sync of another": lambda pair: (torch.ones(3, device="xla") * 2, torch_xla.sync()),
        "read": lambda pair: (pair[1] * 2).tolist(),
    }
    weights = [12 if name == "nothing" else 1 for name in changes]
    picked = [0, 1, 2]
    for _ in range(150):
        [name] = draw.choices(list(changes), weights)
        changes[name](pool[draw.randrange(4)])
        if draw.random() < 0.2:
            picked = [draw.randrange(4) for _ in range(3)]
        a, b, c = (pool[i] for i in picked)
        assert run(a[1], b[1], c[1])[0].tolist() == (a[0] * 100 + b[0] * 10 + c[0]).tolist(), name
