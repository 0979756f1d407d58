"""Numbers that are equal are one number of the program, until they are seen to differ."""

from __future__ import annotations

import random

import pytest
import torch
from counts import counted
from torch import Tensor

import torch_xla


@pytest.fixture(autouse=True)
def cleared() -> None:
    # What other tests have seen of a graph's numbers would decide how often this one compiles.
    torch_xla._XLAC._clear_compilation_cache()


def scaled(tensors: list[Tensor], numbers: list[float]) -> list[Tensor]:
    return [t * number for t, number in zip(tensors, numbers, strict=True)]


def run(tensors: list[Tensor], numbers: list[float]) -> int:
    """How many programs it took; checks the values."""
    with counted() as counts:
        results = scaled(tensors, numbers)
        torch_xla.sync()
        got = [t.cpu() for t in results]
    want = scaled([t.cpu() for t in tensors], numbers)
    assert all(map(torch.equal, got, want))
    return counts.compiled


@pytest.fixture
def tensors() -> list[Tensor]:
    return [torch.randn(5).to("xla") for _ in range(12)]


def test_program_takes_each_of_the_equal_numbers_once(tensors: list[Tensor]):
    results = scaled(tensors, [0.5] * 6 + [0.25] * 6)
    assert len(results) == 12
    run(tensors, [0.5] * 6 + [0.25] * 6)  # a program of its own, with the same numbers
    before = torch_xla.debug.metrics.metric_data("OutboundData")[1]
    with counted() as counts:
        more = scaled(tensors, [0.75] * 6 + [0.125] * 6)
        torch_xla.sync(wait=True)
    assert counts.compiled == 0
    assert torch_xla.debug.metrics.metric_data("OutboundData")[1] - before == 16
    del more


def test_equal_numbers_change_together_without_a_compile(tensors: list[Tensor]):
    assert run(tensors, [0.5] * 12) == 1
    assert sum(run(tensors, [0.5 + i / 8] * 12) for i in range(1, 9) if i != 4) == 0


def test_numbers_that_part_cost_one_compile_and_are_not_joined_again(tensors: list[Tensor]):
    apart = [0.5] * 6 + [0.75] * 6
    assert [run(tensors, n) for n in ([0.5] * 12, apart, [0.5] * 12, apart[::-1])] == [1, 1, 0, 0]


def test_a_schedule_that_passes_another_number_costs_one_compile(tensors: list[Tensor]):
    """Two rates of which one falls: once they are the same, which must not be assumed again."""
    compiled = [run(tensors, [2.0 - i / 4] * 6 + [1.25] * 6) for i in range(4)]
    assert compiled == [1, 0, 0, 0]
    torch_xla._XLAC._clear_compilation_cache()
    compiled = [run(tensors, [2.0 - i / 4] * 6 + [1.25] * 6) for i in (3, 2, 1, 0, 3, 5)]
    assert compiled == [1, 1, 0, 0, 0, 0]


def test_numbers_that_part_one_by_one_cost_few_compiles(tensors: list[Tensor]):
    numbers = [0.5] * 12
    compiled = 0
    for i in range(12):
        numbers[i] = 3.0 + i
        compiled += run(tensors, numbers)
    assert compiled <= 3


def test_pairs_that_part_at_other_times_cost_few_compiles():
    tensors = [torch.randn(5).to("xla") for _ in range(60)]
    numbers = [2.0 + i // 2 for i in range(60)]
    compiled = run(tensors, numbers)
    for i in range(0, 60, 2):
        numbers[i] += 0.5
        compiled += run(tensors, numbers)
    assert compiled <= 9


def test_zeros_that_become_equal_numbers_become_data_together(tensors: list[Tensor]):
    """A learning rate that is warmed up from 0."""
    assert [run(tensors, [v] * 12) for v in (0.0, 0.25, 0.5, 1.0, 0.0)] == [1, 1, 0, 0, 0]


BOOLS = {
    "full": lambda x, flag: torch.full((3, 5), flag, device=x.device),
    "fill_": lambda x, flag: (x > 0).fill_(flag),
    "masked_fill": lambda x, flag: x.masked_fill(x > 0, flag),
    "where": lambda x, flag: torch.where(x > 0, flag, x > 1),
    "mul": lambda x, flag: (x > 0) * flag,
    "add": lambda x, flag: x + flag,
    "add of integers": lambda x, flag: x.long() + flag,
    "eq": lambda x, flag: (x > 0) == flag,
    "0-dim tensor of the CPU": lambda x, flag: (x > 0) | torch.tensor(flag),
}


@pytest.mark.parametrize("name", BOOLS)
def test_a_bool_that_changes_is_the_same_program(name: str):
    """Of `generate`'s last step only that all sequences are done differs from the steps before."""
    function = BOOLS[name]
    x = torch.tensor([[0.5, -1.0, 2.0, 0.0, float("nan")]] * 3)
    on_xla = x.to("xla")
    torch_xla.sync()
    compiled = []
    for flag in (False, False, True):
        with counted() as counts:
            got = function(on_xla, flag)
            torch_xla.sync()
        compiled.append(counts.compiled)
        torch.testing.assert_close(got.cpu(), function(x, flag), rtol=0, atol=0, equal_nan=True)
    assert compiled == [1, 0, 0]


def test_parameter_groups_with_rates_of_their_own(tensors: list[Tensor]):
    def train(device: str) -> tuple[list[Tensor], list[int]]:
        parameters = [t.detach().to(device).requires_grad_() for t in tensors]
        groups = [{"params": parameters[:6]}, {"params": parameters[6:]}]
        optimizer = torch.optim.SGD(groups, lr=0.5, foreach=False)
        compiled = []
        for step in range(6):
            with counted() as counts:
                for parameter in parameters:
                    parameter.grad = parameter.detach() * 0.5
                optimizer.step()
                torch_xla.sync()
            compiled.append(counts.compiled)
            if step > 1:
                optimizer.param_groups[0]["lr"] *= 0.5
        return [p.detach().cpu() for p in parameters], compiled

    want, _ = train("cpu")
    got, compiled = train("xla")
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    assert sum(compiled) <= 2  # one more when the first group's rate is another


class NumberProgram:
    """A random program of numbers, most of which are equal to others at times."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds = [self.random.choice("mafskpni") for _ in range(self.random.randint(3, 14))]
        self.inputs = [torch.randn(9) for _ in range(3)]
        self.ranks = [self.random.randrange(4) for _ in self.kinds]

    def numbers(self) -> list[float]:
        """Equal where the ranks are, but for one in some of the steps."""
        values = [self.random.choice([0.0, 1.0, 0.5, -2.25, 3.0]) for _ in range(4)]
        numbers = [values[rank] for rank in self.ranks]
        if self.random.random() < 0.3:
            numbers[self.random.randrange(len(numbers))] = self.random.choice([0.75, 2.0, 0.0])
        return numbers

    def run(self, numbers: list[float], device: str) -> list[Tensor]:
        x, y, z = (t.to(device) for t in self.inputs)
        for kind, number in zip(self.kinds, numbers, strict=True):
            start = int(abs(number)) % 6
            if kind == "m":
                x = x * number
            elif kind == "a":
                y = y.add(x, alpha=number)
            elif kind == "f":
                z = torch.full_like(z, number) + y
            elif kind == "s":
                x = x.sub(number)
            elif kind == "k":
                y = y.clamp(min=number)
            elif kind == "p":
                z = z.masked_fill(z > number, number)
            elif kind == "n":
                x = x.clone()
                x[start : start + 3].add_(y[start : start + 3], alpha=number)
            else:
                y = torch.where(y > number, y, y + start)
        return [x, y, z]

    def values(self, steps: list[list[float]]) -> list[list[Tensor]]:
        found = []
        for numbers in steps:
            results = self.run(numbers, "xla")
            torch_xla.sync()
            found.append([t.cpu() for t in results])
        return found


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.usefixtures("quick_compilation")
def test_random_programs_have_the_values_of_numbers_of_their_own(seed: int):
    """Bit for bit, once those that change are data: constants of 0 and 1 may round otherwise."""
    program = NumberProgram(seed)
    steps = [program.numbers() for _ in range(8)]
    merged = program.values(steps)
    with counted() as counts:
        again = program.values(steps)
    assert counts.compiled == 0  # what was seen to differ or change is not assumed again
    torch_xla._XLAC._clear_compilation_cache()
    program.values([[i + 0.5 for i in range(len(program.kinds))]])  # none is equal to another
    alone = program.values(steps)
    for i, numbers in enumerate(steps):
        assert all(map(torch.equal, again[i], alone[i]))
        torch.testing.assert_close(merged[i], program.run(numbers, "cpu"))
