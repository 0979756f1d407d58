"""A large graph that differs in a small part from one that came before is computed in parts, whose
values are those of the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from counts import counted
from torch import Tensor
from torch.nn import functional
from with_settings import setting

import torch_xla
from torch_xla.debug import metrics

WIDTH = 6
ROOM = 32
# Of random programs in one run of the tests.
PROGRAMS = 12

pytestmark = pytest.mark.usefixtures("quick_compilation", "cleared")


@pytest.fixture
def cleared() -> Iterator[None]:
    torch_xla._XLAC._clear_compilation_cache()
    with setting(graph_cuts=True, bounded_growth=False):
        yield


class Draw:
    """The same random choices each time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def small(self, x: Tensor) -> Tensor:
        """Of a tensor [WIDTH, n]: a few calls that keep its sizes."""
        draw = random.Random(self.seed)
        for _ in range(draw.randrange(1, 6)):
            x = [
                lambda x: x.flip(1),
                lambda x: x.cumsum(1).tanh(),
                lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
                lambda x: x - x.mean(1, keepdim=True),
                lambda x: (x * x.shape[1]).sin(),
            ][draw.randrange(5)](x)
        return x

    def model(self, x: Tensor, weight: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The large part, of [WIDTH, WIDTH]; with something that it keeps for later."""
        draw = random.Random(self.seed)
        kept = x
        for i in range(30):
            y = [
                lambda x: x @ weight,
                lambda x: x * mask,
                lambda x: x.softmax(-1) + weight,
                lambda x, kept=kept: x + kept,
            ][draw.randrange(4)](x)
            x = functional.layer_norm(y.sigmoid(), (WIDTH,))
            if i == 10:
                kept = x
        return x, kept


def decode(draw: Draw, device: str, sizes: range) -> tuple[list[Tensor], list[int]]:
    """What each turn gives, and how many programs it took. A sequence grows as `generate`'s."""
    torch.manual_seed(draw.seed)
    # Such programs make much of a last bit.
    made = [torch.randn(WIDTH, n, dtype=torch.float64) for n in (WIDTH, WIDTH, sizes.start)]
    weight, state, sequence = (tensor.to(device) for tensor in made)
    results, compiled = [], []
    for _ in sizes:
        with counted() as counts:
            changed = functional.pad(draw.small(sequence), (0, ROOM - sequence.shape[1]))
            x, kept = draw.model(state, weight, changed[:, :WIDTH])
            state = state + x.mean()
            sequence = torch.cat([sequence, draw.small(x)[:, :1]], 1)
            results += [(sequence.sum() > 0).cpu(), sequence.cpu(), state.cpu(), kept.cpu()]
        compiled.append(counts.compiled)
    return results, compiled


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_give_the_cpus_values(seed: int):
    draw = Draw(seed)
    want, _ = decode(draw, "cpu", range(4, 9))
    got, _ = decode(draw, "xla", range(4, 9))
    assert metrics.counter_value("GraphCut")
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def compiles(step: Callable[[int], Tensor], sizes: range) -> list[int]:
    """How many programs the read of each size takes."""
    found = []
    for size in sizes:
        with counted() as counts:
            step(size).cpu()
        found.append(counts.compiled)
    return found


def test_the_large_part_is_compiled_once():
    weight = torch.randn(WIDTH, WIDTH).to("xla")

    def step(size: int) -> Tensor:
        mask = functional.pad(torch.ones(size, device="xla"), (0, ROOM - size))[:WIDTH]
        x = weight
        for _ in range(80):
            x = (x @ weight + mask).tanh()
        return x

    assert compiles(step, range(2, 8)) == [1, 2, 1, 1, 1, 1]


def test_switched_off_each_graph_is_a_program():
    with setting(graph_cuts=False):
        _, compiled = decode(Draw(0), "xla", range(4, 7))
    assert metrics.counter_value("GraphCut") is None
    assert min(compiled) > 0


def test_the_parts_are_told(tmp_path):
    log = tmp_path / "log"
    with setting(pt_xla_debug=True, pt_xla_debug_file=str(log)):
        decode(Draw(0), "xla", range(4, 7))
    assert "that differ from those of another: these are computed apart" in log.read_text()
