"""What is read of a few small integers is computed without a program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from counts import counted
from torch import Tensor
from with_settings import setting

import torch_xla
from torch_xla.debug import metrics


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    torch_xla._XLAC._clear_compilation_cache()
    metrics.clear_counters()
    yield


def num_host_reads() -> int:
    return metrics.counter_value("HostRead") or 0


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "any": lambda x: (x == 0).any(),
    "count": lambda x: (x[:, -1] == 0).sum() > 0,
    "mask": lambda x: (x != 0).long().cumsum(-1) - 1,
    "isin": lambda x: torch.isin(x, torch.tensor([0, 3], device=x.device)),
    "index": lambda x: x[:, torch.tensor([0, 2], device=x.device)],
    "factories": lambda x: torch.ones_like(x) * ~(x == 0).any() + torch.full((3,), 7).to(x.device),
    "views": lambda x: x.t()[1:].reshape(-1).expand(2, 4).select(0, 1),
    "numbers": lambda x: x.clamp(min=1, max=2) * 5 + x.add(x, alpha=3),
    "bool number": lambda x: (x > 1).logical_and(torch.tensor(True)),
    "list": lambda x: torch.cat([x, x * 2], 1).amax((0, 1)),
    "in place": lambda x: x.clone().add_(2).mul_(x),
    "several": lambda x: x.sort(descending=True).indices,
    "where": lambda x: torch.where(x > 1, x, -1),
    "uint8": lambda x: x.to(torch.uint8) - 4,
    "nothing": lambda x: x[:0].sum(0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str):
    x = torch.tensor([[1, 2, 0], [3, 0, 0]])
    on_xla = x.to("xla")
    with counted() as counts:
        actual = FUNCTIONS[name](on_xla).cpu()
    assert counts.compiled == counts.executed == 0
    assert num_host_reads() == 1
    expected = FUNCTIONS[name](x)
    assert actual.dtype == expected.dtype
    assert torch.equal(actual, expected)


def test_what_comes_often_gets_no_program_either():
    x = torch.arange(6).to("xla")
    with counted() as counts:
        for n in range(40):
            assert (x + n).max().item() == 5 + n
    assert counts.compiled == counts.executed == 0
    assert num_host_reads() == 40


def test_what_was_computed_on_the_way_is_kept():
    x = torch.tensor([[1, 2, 0], [3, 0, 0]]).to("xla")
    mask = (x != 0).long()
    assert not mask.all()
    with counted() as counts:
        total = mask.sum()
        torch_xla.sync()
    assert counts.compiled == 1
    assert total.item() == 3
    assert mask.tolist() == [[1, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.float().mean(),  # no integers
        lambda x: torch.arange(5000, device=x.device).sum(),  # no small ones
        lambda x: torch.randint(5, (3,), device=x.device),
        lambda x: sum((x + n for n in range(60)), x),
        lambda x: x.index_select(0, x + 1),  # the CPU refuses it
        lambda x: (x + torch.iinfo(torch.long).min) // -1,  # PyTorch's kernel would end the process
        lambda x: torch.lcm(x + torch.iinfo(torch.long).min, x),
    ],
    ids=["floats", "large", "random", "long", "refused", "division", "lcm"],
)
def test_others_get_a_program(function: Callable[[Tensor], Tensor]):
    x = torch.arange(3).to("xla")
    with counted() as counts:
        function(x).cpu()
    assert counts.compiled == counts.executed == 1
    assert num_host_reads() == 0


def test_a_barrier_computes_it_with_a_program():
    x = torch.arange(3).to("xla")
    with counted() as counts:
        y = x + 1
        torch_xla.sync()
    assert counts.compiled == 1
    assert y.tolist() == [1, 2, 3]


def test_switched_off():
    x = torch.arange(3).to("xla")
    with setting(host_reads=False), counted() as counts:
        assert (x + 1).tolist() == [1, 2, 3]
    assert counts.compiled == 1


def test_what_a_program_that_runs_gives_is_waited_for():
    weights = torch.rand(300, 300).to("xla")
    for _ in range(20):
        weights = weights @ weights / 75
    index = weights.argmax(1)
    torch_xla.sync()
    expected = weights.cpu().argmax(1)
    assert torch.equal((index[:10] * 2).cpu(), expected[:10] * 2)
    assert num_host_reads() == 1


def test_threads():
    x = torch.arange(64).to("xla")
    torch_xla.sync()
    failures = []

    def read(k: int) -> None:
        for n in range(20):
            if (x[k : k + n + 1] * k).sum().item() != sum(range(k, k + n + 1)) * k:
                failures.append((k, n))

    threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
