"""State that is born as a constant is memory of the first program, so that a step compiles once."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torch_xla
from torch_xla.debug import memory

pytestmark = pytest.mark.usefixtures("quick_compilation", "cleared")


@pytest.fixture
def cleared() -> None:
    # What became of a graph's constants in other tests decides what they are in this one.
    torch_xla._XLAC._clear_compilation_cache()


def num_compiled() -> int:
    return torch_xla._XLAC._computation_stats()[0]


def compiles(step: Callable[[], object], count: int = 4) -> list[int]:
    """Of each step, with a barrier behind it. There is none before the first."""
    found = []
    for _ in range(count):
        before = num_compiled()
        step()
        torch_xla.sync()
        found.append(num_compiled() - before)
    return found


OPTIMIZERS: dict[type[torch.optim.Optimizer], dict[str, float]] = {
    torch.optim.ASGD: {},
    torch.optim.Adadelta: {"weight_decay": 0.01},
    torch.optim.Adafactor: {},
    torch.optim.Adagrad: {"lr_decay": 0.01},
    torch.optim.Adam: {"amsgrad": True},
    torch.optim.AdamW: {},
    torch.optim.Adamax: {},
    torch.optim.Muon: {},
    torch.optim.NAdam: {},
    torch.optim.RAdam: {},
    torch.optim.RMSprop: {"momentum": 0.9, "centered": True},
    torch.optim.Rprop: {},
    torch.optim.SGD: {"momentum": 0.9},
}


# What the first step does otherwise: SGD begins its momentum as a copy of the gradient, ASGD copies
# the learning rate and reads the step, Adafactor reads norms.
COMPILES: dict[tuple[object, ...], list[int]] = {
    (torch.optim.SGD,): [1, 1, 0, 0],
    (torch.optim.SGD, "foreach"): [1, 1, 0, 0],
    (torch.optim.SGD, "fused"): [1, 1, 0, 0],
    (torch.optim.ASGD,): [2, 2, 0, 0],
    (torch.optim.ASGD, "foreach"): [4, 2, 0, 0],
    (torch.optim.ASGD, "capturable"): [1, 1, 0, 0],
    (torch.optim.Adafactor,): [5, 2, 0, 0],
    (torch.optim.Adafactor, "foreach"): [5, 2, 0, 0],
}


def ways_of(kind: type[torch.optim.Optimizer]) -> list[dict[str, bool]]:
    parameters = inspect.signature(kind).parameters
    ways: list[dict[str, bool]] = [{}]
    if "foreach" in parameters:
        ways.append({"foreach": False})
    ways += [{name: True} for name in ("fused", "capturable") if name in parameters]
    return ways


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        pytest.param(kind, way, id="-".join([kind.__name__, *(way or ["default"])]))
        for kind in OPTIMIZERS
        for way in ways_of(kind)
    ],
)
def test_optimizer_compiles_once(kind: type[torch.optim.Optimizer], way: dict[str, bool]):
    def train(device: str) -> tuple[list[Tensor], list[int]]:
        torch.manual_seed(0)
        weights = [torch.randn(4, 3), torch.randn(3, 2)]
        parameters = [w.to(device).requires_grad_() for w in weights]
        x = torch.randn(5, 4).to(device)
        options = {} if device == "cpu" else way
        optimizer = kind(parameters, **OPTIMIZERS[kind], **options)

        def step() -> None:
            optimizer.zero_grad()
            (x @ parameters[0] @ parameters[1]).square().mean().backward()
            optimizer.step()

        compiled = compiles(step)
        return [p.detach().cpu() for p in parameters], compiled

    want, _ = train("cpu")
    got, compiled = train("xla")
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    assert compiled == COMPILES.get((kind, *way), [1, 0, 0, 0])


def test_gradients_that_are_accumulated_and_a_running_loss():
    weight = torch.randn(3, 2).to("xla").requires_grad_()
    x = torch.randn(4, 5, 3).to("xla")
    total = torch.zeros((), device="xla")
    momentum = torch.zeros_like(weight)

    def step() -> None:
        weight.grad = None
        for i in range(4):
            loss = (x[i] @ weight).square().mean()
            loss.backward()
            total.add_(loss.detach())
        momentum.mul_(0.9).add_(weight.grad)
        weight.data.sub_(momentum, alpha=0.1)

    assert compiles(step) == [1, 0, 0, 0]


def test_static_cache_that_is_made_in_the_first_step():
    keys, values = (torch.zeros(1, 2, 8, 4, device="xla") for _ in range(2))
    query = torch.randn(1, 2, 1, 4).to("xla")
    seen: list[Tensor] = []
    places = [torch.tensor([i]).to("xla") for i in range(4)]

    def step() -> None:
        place = places[len(seen)]
        keys.index_copy_(2, place, query * 2)
        values.index_copy_(2, place, query + 1)
        seen.append(nn.functional.scaled_dot_product_attention(query, keys, values))

    assert compiles(step) == [1, 0, 0, 0]
    assert keys.cpu()[0, 0, :, 0].count_nonzero() == 4


def test_running_metrics():
    right = torch.zeros((), dtype=torch.int64, device="xla")
    count = torch.full((3,), 2.5, device="xla")
    best = torch.full((), -torch.inf, device="xla")
    seen = torch.zeros(3, dtype=torch.bool, device="xla")
    x = torch.randn(6, 3).to("xla")

    def step() -> None:
        right.add_((x.argmax(1) == 1).sum())
        count.add_(x.sum(0))
        torch.maximum(best, x.max(), out=best)
        seen.logical_or_(x.sum(0) > 0)

    assert compiles(step) == [1, 0, 0, 0]
    assert right.item() == 4 * (x.cpu().argmax(1) == 1).sum()
    assert best.item() == x.cpu().max()
    assert seen.tolist() == (x.cpu().sum(0) > 0).tolist()


def test_running_statistics_of_batch_norm():
    def run(device: str) -> tuple[list[Tensor], list[int]]:
        torch.manual_seed(0)
        x = torch.randn(6, 3).to(device)
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        count = torch.zeros((), dtype=torch.int64, device=device)

        def step() -> Tensor:
            count.add_(1)
            return nn.functional.batch_norm(x, mean, var, training=True)

        compiled = compiles(step)
        return [mean.cpu(), var.cpu(), count.cpu()], compiled

    (want, _), (got, compiled) = run("cpu"), run("xla")
    torch.testing.assert_close(got, want)
    assert compiled == [1, 0, 0, 0]


def test_the_estimate_of_a_barrier_is_of_its_program():
    x = torch.randn(64, 64).to("xla")
    state = torch.zeros(64, 64, device="xla")
    other = x + 1
    state.add_(x)
    before = num_compiled()
    estimates = [memory.estimate() for _ in range(2)]
    assert [estimate["alias"] for estimate in estimates] == [64 * 64 * 4] * 2
    torch_xla.sync()
    assert num_compiled() - before == 1
    assert torch.equal(state.cpu(), x.cpu())
    assert torch.equal(other.cpu(), x.cpu() + 1)


def test_what_is_only_overwritten_stays_a_constant():
    x = torch.randn(40, 40).to("xla")
    torch_xla.sync()
    before = torch_xla.debug.metrics.metric_data("OutboundData")[1]
    made = torch.empty(40, 40, device="xla").copy_(x)
    drawn = torch.empty(40, 40, device="xla").normal_()
    filled = torch.zeros(40, 40, device="xla").fill_(2)
    torch_xla.sync(wait=True)
    # Of a random number's key and the like.
    assert torch_xla.debug.metrics.metric_data("OutboundData")[1] - before < 100
    assert torch.equal(made.cpu(), x.cpu())
    assert filled.tolist() == [[2.0] * 40] * 40
    assert drawn.std() > 0.5


def test_large_memory_that_each_step_makes_anew_is_made_by_the_program():
    x = torch.randn(300, 300).to("xla")

    def step() -> Tensor:
        sums = torch.zeros(300, 300, device="xla")
        sums.add_(x)
        torch_xla.sync()
        return sums

    assert compiles(step) == [1, 1, 0, 0]
    before = torch_xla.debug.metrics.metric_data("OutboundData")[1]
    step()
    assert torch_xla.debug.metrics.metric_data("OutboundData")[1] == before


def test_large_memory_that_lives_on_is_memory_at_the_next_time_too():
    x = torch.randn(310, 310).to("xla")

    def train() -> list[int]:
        state = torch.zeros(310, 310, device="xla")
        return compiles(lambda: state.add_(x))

    assert [train(), train()] == [[1, 0, 0, 0], [0, 0, 0, 0]]


class StateProgram:
    """State of many constants, and steps that update it at random."""

    CONSTANTS: tuple[Callable[[str], Tensor], ...] = (
        lambda device: torch.zeros(5, device=device),
        lambda device: torch.ones(5, dtype=torch.float64, device=device),
        lambda device: torch.full((5,), 0.1, device=device),
        lambda device: torch.full((5,), 0.1, dtype=torch.float64, device=device),
        lambda device: torch.full((5,), -torch.inf, device=device),
        lambda device: torch.full((5,), 1e-42, device=device),
        lambda device: torch.ones(5, dtype=torch.bfloat16, device=device),
        lambda device: torch.full((5,), 0.1, dtype=torch.bfloat16, device=device),
        lambda device: torch.full((5,), 3, dtype=torch.int32, device=device),
        lambda device: torch.ones(5, dtype=torch.int64, device=device),
        lambda device: torch.full((5,), 2**53 + 1, dtype=torch.float64, device=device),
        lambda device: torch.full((5,), 2**40, dtype=torch.int64, device=device),
        lambda device: torch.ones(5, dtype=torch.float16, device=device),
        lambda device: torch.zeros(5, dtype=torch.complex64, device=device),
        lambda device: torch.ones(5, dtype=torch.uint8, device=device),
        lambda device: torch.empty(5, device=device).fill_(0.3),
        lambda device: torch.ones(5, device=device).zero_(),
        lambda device: torch.empty(5, dtype=torch.int64, device=device).fill_(-7),
        lambda device: torch.zeros_like(torch.ones(5, device=device)),
        lambda device: torch.ones(5, device=device).new_full((5,), 7.25),
    )

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.makers = self.random.choices(self.CONSTANTS, k=6)
        self.lines = [
            (self.random.choice("amsvocrx"), self.random.randrange(6), self.random.randrange(6))
            for _ in range(12)
        ]

    def step(self, state: list[Tensor]) -> None:
        for kind, to, of in self.lines:
            target, source = state[to], state[of]
            other = source.to(target.dtype)
            if target.dtype == torch.uint8 or source.is_complex():
                other = torch.ones_like(target)
            if kind == "a":
                target.add_(other)
            elif kind == "m":
                target.mul_(other + 1)
            elif kind == "s":
                target[1:3].sub_(other[1:3])
            elif kind == "v":
                target.view(5, 1).add_(2)
            elif kind == "o":
                target.copy_(other)
            elif kind == "c":
                state[of] = source.clone()
            elif kind == "r":
                state[to] = torch.zeros_like(target)
            else:
                target.neg_()

    def run(self, device: str, is_known: bool = False) -> list[list[Tensor]]:
        """The state after each step. `is_known`: a barrier makes it before the first."""
        state = [make(device) for make in self.makers]
        if is_known:
            torch_xla.sync()
        kept: list[list[Tensor]] = []
        for _ in range(2):
            self.step(state)
            torch_xla.sync()
            kept.append([t.cpu().clone() for t in state])
        return kept


@pytest.mark.parametrize("seed", range(16))
def test_random_updates_have_the_values_of_state_that_was_made_before(seed: int):
    """Bit for bit: `1e-42` and the like too, wherever it becomes a number of the dtype."""
    program = StateProgram(seed)
    for got, known, want in zip(
        program.run("xla"), program.run("xla", is_known=True), program.run("cpu"), strict=True
    ):
        for a, b, c in zip(got, known, want, strict=True):
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            torch.testing.assert_close(a, c, equal_nan=True)


def test_an_estimate_is_of_the_barriers_program_where_memory_lives_on(device):
    x, old = (torch.ones(1 << 18).to(device) for _ in range(2))

    def step(old: Tensor) -> Tensor:
        new = torch.zeros(1 << 18, device=device)
        new += x
        old += x
        return new

    first = step(old)
    torch_xla.sync()
    second = step(first)  # the same graph: what was born in it lives on
    before = num_compiled()
    memory.estimate()
    torch_xla.sync()
    assert num_compiled() == before
    assert first[0].item() == 2 and second[0].item() == 1
