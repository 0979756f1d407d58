"""What runs when, and how often programs are compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from counts import counted
from processes import run_in_process
from torch import Tensor

import torch_xla
from torch_xla.debug import metrics


def test_nothing_runs_before_a_barrier():
    with counted() as counts:
        x = torch.ones(4, device="xla")
        for _ in range(10):
            x = x * 2 + 1
        x[0].zero_()
        assert repr(x.shape) == "torch.Size([4])"
    assert (counts.compiled, counts.executed) == (0, 0)


def test_barrier_runs_once_and_nothing_without_work():
    x = torch.ones(4, device="xla")
    with counted() as counts:
        x = x + 1
        torch_xla.sync()
        torch_xla.sync()
        torch_xla.sync(wait=True)
    assert counts.executed == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.sum().item(),
        lambda x: repr(x),
        lambda x: bool((x > 0).all()),
        lambda x: x.cpu().numpy(),
        lambda x: x.to("cpu"),
        lambda x: float(x[0]),
        lambda x: int(x[1]),
    ],
)
def test_read_runs_the_program(read):
    x = torch.ones(3, device="xla") * 3
    with counted() as counts:
        y = x + 1
        read(y)
    assert counts.executed >= 1


def test_read_computes_only_what_it_needs_and_keeps_it():
    x = torch.ones(4, device="xla")
    with counted() as counts:
        a = x + 1
        b = x.exp()
        assert a.tolist() == [2, 2, 2, 2]
        assert a.tolist() == [2, 2, 2, 2]
    assert counts.executed == 1
    with counted() as counts:  # its barrier computes b, and the read finds it
        assert b.tolist()[0] == pytest.approx(2.718, 1e-3)
    assert counts.executed == 0
    with counted() as counts:
        assert (a * 3).tolist() == [6, 6, 6, 6]
    assert counts.executed == 1


def test_reads_keep_memory_that_was_written_through_views():
    """Else each read would compute all writes before it again, in a larger program each time."""

    def write_and_read(cache: Tensor, token: Tensor, steps: range) -> list[float]:
        values = []
        for i in steps:
            cache[i] = token
            token.copy_(torch.tanh(cache.sum(0) + i))
            values.append(token[0].item())
        return values

    states = [(torch.zeros(12, 3, device=d), torch.ones(3, device=d)) for d in ("cpu", "xla")]
    first, later = range(4), range(4, 12)
    expected, read = (write_and_read(*state, first) for state in states)
    assert read == pytest.approx(expected)
    expected = write_and_read(*states[0], later)
    with counted() as counts:
        read = write_and_read(*states[1], later)
    assert read == pytest.approx(expected)
    assert (counts.compiled, counts.executed) == (0, len(later))
    torch.testing.assert_close(states[1][0].cpu(), states[0][0])


def pop_rows(x: Tensor) -> Iterator[float]:
    while len(x):
        yield x[0].sum().item()
        x = x[1:]


def turn(x: Tensor) -> Iterator[float]:
    for i in range(8):
        x = x.t().view(40, 5) if i % 2 else x.view(5, 40).t()
        yield x[0, 1].item()


def take_every_other(x: Tensor) -> Iterator[float]:
    while len(x) > 4:
        x = x[1::2][1:]
        yield x[0, 0].item()
        x[0].add_(1)


@pytest.mark.parametrize("loop", [pop_rows, turn, take_every_other])
def test_views_of_views_are_views_of_the_memory(loop):
    """Else the program of each step would have one view more."""
    x = torch.randn(40, 5)
    expected = list(loop(x.clone()))
    with counted() as counts:
        assert list(loop(x.to("xla"))) == pytest.approx(expected)
    assert counts.compiled <= 4
    assert counts.executed == len(expected)


def test_same_program_is_compiled_once():
    with counted() as counts:
        for i in range(5):
            x = torch.full((7,), i + 2.5, device="xla")
            y = (x * 3 + (i + 0.5)).sin()
            torch_xla.sync()
            del x, y
    assert counts.compiled == 1
    assert counts.executed == 5


NUMBERS = pytest.mark.parametrize(
    "call",
    [
        lambda x, v: x * v,
        lambda x, v: x.add(x, alpha=v),
        lambda x, v: x.add_(v),
        lambda x, v: x.clone().fill_(v),
        lambda x, v: x.lerp(x + 1, v),
        lambda x, v: x.addcdiv(x, x + 3, value=v),
        lambda x, v: torch._foreach_add([x, x], v)[0],
        lambda x, v: torch.full_like(x, v),
        lambda x, v: x.masked_fill(x > 0, v),
        lambda x, v: x > v,
        lambda x, v: x * torch.tensor(v),
        lambda x, v: x.__setitem__(0, v),
        lambda x, v: x.clamp(min=v),
        lambda x, v: x.clamp(-v, v),
        lambda x, v: x.clamp_(max=v),
    ],
)


@NUMBERS
def test_numbers_change_without_a_compile(call):
    x = torch.arange(5.0, device="xla")
    with counted() as first:
        call(x, 0.25)
        torch_xla.sync()
    with counted() as later:
        for i in range(4):
            y = call(x, 0.5 + i / 8)
            torch_xla.sync()
            del y
    assert first.compiled <= 1
    assert later.compiled <= 1  # where the first had another leaf: x after a write


@NUMBERS
def test_zero_and_one_are_compiled_in_until_they_change(call):
    x, cpu = torch.arange(5.0, device="xla"), torch.arange(5.0)
    torch_xla.sync()
    with counted() as counts:
        for v in (0.0, 1.0, 2.0, 0.0, 3.0, 1.0):
            y = call(x, v)
            torch_xla.sync()
            want = call(cpu, v)
            if want is not None:
                torch.testing.assert_close(y.cpu(), want)
            del y
        torch.testing.assert_close(x.cpu(), cpu)
    assert counts.compiled <= 2


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i : i + 3] * 2,
        lambda x, i: x[i] + 1,
        lambda x, i: x[:, i].exp(),
        lambda x, i: x.narrow(0, i, 2) * 3,
        lambda x, i: x.clone().__setitem__(i, 1.5),
        lambda x, i: x.clone()[i : i + 2].mul_(2),
        lambda x, i: x.clone()[i : i + 5 : 2].mul_(2),
        lambda x, i: x.select(1, i).sum(),
        lambda x, i: x.tril(i),
        lambda x, i: x.__setitem__(i, i),
        lambda x, i: x[i : i + 2].add_(i),
    ],
)
def test_slices_at_other_offsets_are_compiled_twice_at_most(call):
    x = torch.arange(144.0, device="xla").reshape(12, 12)
    with counted() as counts:
        for i in range(7):
            y = call(x, i)
            torch_xla.sync()
            del y
    assert counts.compiled <= 2


def test_slices_at_other_offsets_are_right():
    cpu = torch.arange(40.0).reshape(10, 4)
    x = cpu.to("xla")
    for i in range(8):
        assert torch.equal(x[i : i + 2].cpu(), cpu[i : i + 2])
        assert torch.equal(x[i].cpu(), cpu[i])


def test_loop_of_writes_at_indices():
    with counted() as counts:
        x = torch.zeros(8, device="xla")
        for i in range(8):
            x[i] = i
            torch_xla.sync()
        assert x.tolist() == list(range(8))
    assert counts.compiled <= 3  # the first writes to zeros, not to an array


@pytest.mark.timeout(120)  # some seconds on an idle machine
def test_500_writes_through_slices_are_one_program():
    with counted() as counts:
        x = torch.zeros(600, 4, device="xla")
        for i in range(500):
            x[i : i + 3].add_(1)
        got = x.cpu()
    assert (counts.compiled, counts.executed) == (1, 1)
    want = torch.zeros(600, 4)
    for i in range(500):
        want[i : i + 3].add_(1)
    assert torch.equal(got, want)


def test_mask_with_other_values_is_not_compiled_anew():
    x = torch.arange(6.0, device="xla")
    with counted() as counts:
        for i in range(4):
            y = x.clone()
            y[y > i + 0.5] = -1.0
            torch_xla.sync()
            del y
    assert counts.compiled <= 2


def test_long_loops_without_a_barrier():
    x = torch.zeros(4, device="xla")
    for _ in range(3000):
        x = x + 1
    assert x.tolist() == [3000] * 4


def test_step_context_is_a_barrier():
    x = torch.ones(2, device="xla")
    with counted() as counts, torch_xla.step():
        x = x + 1
    assert counts.executed == 1


def test_wait_returns_when_values_are_there():
    def finished():
        return metrics.metric_data("ExecuteTime")[0]

    x = torch.randn(400, 400, device="xla")
    torch_xla.sync(wait=True)
    before = finished()
    for _ in range(3):
        for _ in range(10):
            x = x @ x * 0.01
        torch_xla.sync()
    torch_xla.sync(wait=True)
    assert finished() - before == 3


def test_import_backward_and_fork_make_no_client():
    out = run_in_process(
        """
        import os, torch, torch_xla
        torch.ones(2, requires_grad=True).exp().sum().backward()
        child = os.fork()
        if child == 0:
            os._exit(1 if torch_xla._XLAC._xla_runtime_is_initialized() else 0)
        assert os.waitpid(child, 0)[1] == 0
        assert not torch_xla._XLAC._xla_runtime_is_initialized()
        x = torch.ones(2, device="xla", requires_grad=True)
        x.exp().sum().backward()
        print(x.grad.tolist()[0])
        """
    )
    assert out.startswith("2.718")


def test_several_devices_in_one_process():
    out = run_in_process(
        """
        import torch, torch_xla
        assert torch_xla.device_count() == 3
        xs = [torch.full((2,), float(i), device=d) for i, d in enumerate(torch_xla.devices())]
        ys = [x * 2 + 1 for x in xs]
        total = sum(y.to("xla:0") for y in ys)
        print(total.tolist(), ys[2].device, ys[2].tolist())
        """,
        CPU_NUM_DEVICES="3",
    )
    assert out == "[9.0, 9.0] xla:2 [5.0, 5.0]"


def test_values_need_no_barrier_at_exit():
    out = run_in_process(
        """
        import torch, torch_xla
        kept = [torch.ones(3, device="xla") * i for i in range(5)]
        torch_xla.sync()
        kept.append(kept[0][1:])
        kept[0].add_(1)
        print("done")
        """
    )
    assert out == "done"
