"""Programs that are compiled quickly first, on the CPU's plugin: how often each is compiled, and
what its launches give before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
from processes import run_in_process
from torch import Tensor, nn
from with_settings import setting

import torch_xla
from torch_xla.debug import metrics

pytestmark = pytest.mark.optimized

# More than a program takes until it is worth all optimizations.
STEPS = 8


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    torch_xla._XLAC._clear_compilation_cache()
    with setting(tiered_compilation=True):
        yield


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def counts() -> tuple[int, int, int]:
    names = ("UncachedCompile", "QuickCompile", "FullCompile")
    uncached, quick, full = (metrics.counter_value(name) or 0 for name in names)
    return uncached, quick, full


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def train(device: str, steps: int) -> list[Tensor]:
    """The losses of a small training, with a reduction whose order a compiler may choose."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(37, 19), nn.GELU(), nn.Linear(19, 5))
    x, y = torch.randn(11, 37).to(device), torch.randn(11, 5).to(device)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if device == "xla":
            torch_xla.sync()
        losses.append(loss.detach().cpu())
    return losses


def test_a_step_is_compiled_quickly_and_once_more_behind_the_steps():
    losses = train("xla", STEPS)
    torch.testing.assert_close(losses, train("cpu", STEPS), rtol=1e-4, atol=1e-6)
    uncached, quick, _ = counts()
    assert quick == uncached > 0
    assert eventually(lambda: metrics.metric_data("FullCompileTime") is not None)
    assert counts()[2] == 1
    # Steps find the program whichever it is.
    assert counts()[0] == uncached
    torch.testing.assert_close(train("xla", STEPS), losses, rtol=1e-4, atol=1e-6)
    assert counts()[2] == 1
    assert metrics.counter_value("FullCompileFailure") is None


def test_what_runs_once_is_compiled_once():
    a = torch.randn(5, 5)
    torch.testing.assert_close((a.to("xla") @ a.to("xla")).cpu(), a @ a)
    assert counts() == (1, 1, 0)


@pytest.mark.usefixtures("deterministic")
def test_deterministic_steps_are_those_of_the_optimized_program():
    losses = train("xla", STEPS)
    _, quick, full = counts()
    assert (quick, full) == (0, 0)
    torch_xla._XLAC._clear_compilation_cache()
    with setting(tiered_compilation=False):
        plain = train("xla", STEPS)
    assert all(map(torch.equal, losses, plain))


def test_quick_programs_are_not_used_once_determinism_is_asked_for():
    a = torch.randn(5, 5).to("xla")
    torch_xla.sync()
    a.sin().cpu()
    assert counts()[1] == 1
    torch.use_deterministic_algorithms(True)
    try:
        a.sin().cpu()
    finally:
        torch.use_deterministic_algorithms(False)
    assert counts() == (2, 1, 0)


def test_calls_of_compiled_graphs_count_as_launches():
    x = torch.randn(4, 6).to("xla")
    torch_xla.sync()
    compiled = torch.compile(lambda t: (t * 2).sin().sum(1), backend="openxla")
    for _ in range(STEPS):
        result = compiled(x)
        torch_xla.sync(wait=True)
    assert eventually(lambda: counts()[2] == 1)
    again = compiled(x)
    torch.testing.assert_close(again.cpu(), (x.cpu() * 2).sin().sum(1))
    torch.testing.assert_close(again.cpu(), result.cpu())


def test_a_process_ends_without_the_second_compilation():
    script = """
        import time
        import torch, torch_xla
        from torch_xla.debug import metrics
        torch_xla.settings.tiered_compilation = True
        x = torch.randn(64, 64).to("xla")
        torch_xla.sync()
        while not metrics.counter_value("FullCompile"):
            y = x
            for i in range(40):
                y = (y @ x).softmax(i % 2)
            torch_xla.sync(wait=True)
        print("ended")
    """
    assert run_in_process(script) == "ended"
