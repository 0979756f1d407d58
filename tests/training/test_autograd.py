"""Gradients are those of PyTorch on the CPU, also where they are written, kept and asked for twice.

The first test runs random programs (autograd_programs.py); AUTOGRAD_PROGRAMS sets how many. The
others are the cases that have gone wrong.
"""

from __future__ import annotations

import os

import autograd_programs
import pytest
import torch
from autograd_pieces import Nothing
from both_devices import check
from torch.nn import functional

import torch_xla.debug.metrics as metrics

PROGRAMS = int(os.environ.get("AUTOGRAD_PROGRAMS", "200"))
PER_TEST = 100


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_programs_agree_with_cpu(first):
    failures = autograd_programs.search(first, min(PER_TEST, PROGRAMS - first))
    assert not failures, "\n" + "\n".join(failures)


def numbers(*shape, device):
    count = torch.Size(shape).numel()
    return torch.arange(float(count)).reshape(shape).to(device)


def test_write_by_strides_of_a_permuted_result_gives_gradient_where_it_was():
    def program(device):
        x = numbers(2, 3, device=device).requires_grad_()
        v = x.t() * 2
        v.as_strided((), (), 1)[...] = 0
        (v * numbers(3, 2, device=device)).sum().backward()
        return v, x.grad

    check(program)


@pytest.mark.filterwarnings("ignore:.*index with a mask has as many results")
@pytest.mark.parametrize("way", ["mask", "values by a mask", "fill", "index fill"])
def test_what_a_write_leaves_has_the_gradient_of_the_base(way):
    # The view in between lacks two of the three elements.
    def program(device):
        x = numbers(16, device=device).requires_grad_()
        base = x * 2
        v = base.as_strided((3,), (3,), 2).as_strided((3,), (1,), 0)
        mask = torch.tensor([True, False, False], device=device)
        number = numbers(2, device=device)[1].requires_grad_()
        if way == "mask":
            v[mask] += 0.5
        elif way == "values by a mask":
            v[mask] = number * numbers(2, device=device)[1:]
        elif way == "fill":
            v.masked_fill_(mask, number)
        else:
            v.index_fill_(0, torch.tensor([1], device=device), number)
        (base * numbers(16, device=device)).sum().backward()
        return (base, x.grad) if number.grad is None else (base, x.grad, number.grad)

    check(program)


@pytest.mark.parametrize("name", ["offset", "gaps", "transposed"])
def test_write_by_strides_of_a_base_that_is_a_part_of_memory(name):
    def program(device):
        memory = numbers(4, 6, device=device)
        parts = {"offset": memory[1:], "gaps": memory[:, ::2], "transposed": memory.t()}
        base = parts[name].detach()
        factor = torch.ones_like(base).requires_grad_()
        base.mul_(factor)
        base.as_strided((2, 2), (6, 1), base.storage_offset() + 2).mul_(5)
        (base * numbers(*base.shape, device=device)).sum().backward()
        return base, factor.grad

    check(program)


def test_view_by_strides_gives_gradient_beyond_the_view_it_was_called_on():
    def program(device):
        x = numbers(8, device=device).requires_grad_()
        y = x * 1
        wide = y[2:6].as_strided((3,), (3,), 0)
        y.mul_(3)
        (wide * numbers(3, device=device)).sum().backward()
        return wide, x.grad

    check(program)


def test_write_to_part_of_an_overlapping_view_by_strides():
    def program(device):
        x = numbers(6, device=device).requires_grad_()
        y = x * 1
        y.as_strided((2, 3), (1, 1), 1)[1].mul_(2)
        (y * numbers(6, device=device)).sum().backward()
        return y, x.grad

    check(program)


CHANGES = {
    "t_": lambda t: t.t_(),
    "unsqueeze_": lambda t: t.unsqueeze_(1),
    "as_strided_": lambda t: t.as_strided_((3, 2), (1, 3)),
}
PICKS = {
    "row": lambda t: t[0],
    "column": lambda t: t.select(1, 1),
    "transposed": lambda t: t.transpose(0, 1),
    "diagonal": lambda t: t.diagonal(),
}


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_gradient_of_a_view_that_is_older_than_a_change_of_its_base(change, pick, recorded):
    def program(device):
        x = numbers(3, 3, device=device).requires_grad_()
        base, memory = x * 2, x * 3
        changed = memory.view(9).view(3, 3)  # itself a view
        views = [pick(base), pick(changed), pick(changed).view_as(pick(changed))]
        with torch.set_grad_enabled(recorded):
            change(base)
            change(changed)
        # Autograd itself takes no other shape of what it was not told of.
        if recorded:
            views.append(base)
        elif base.shape != x.shape:
            views.pop(0)
        tensors = changed, *views
        losses = [(v * numbers(*v.shape, device=device)).sum() for v in tensors]
        return [g for loss in losses for g in torch.autograd.grad(loss, x, retain_graph=True)]

    check(program)


COMPLEX_PICKS = {
    "imag": lambda t: t.imag,
    "real": lambda t: t.real,
    "row of imag": lambda t: t.imag[1],
    "imag of a row": lambda t: t[1].imag,
    "imag, transposed": lambda t: t.imag.t(),
    "imag of the conjugate": lambda t: t.conj().imag,
    "row of the conjugate": lambda t: t.conj()[1],
    "row of the negative": lambda t: torch._neg_view(t)[1],
    "row of the same": lambda t: torch.view_as_complex(torch.view_as_real(t))[1],
}


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("pick", COMPLEX_PICKS.values(), ids=COMPLEX_PICKS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_gradient_of_complex_numbers_parts_older_than_a_change_of_their_base(
    change, pick, is_written
):
    def program(device):
        flat = numbers(3, 3, device=device)
        x = torch.complex(flat - 4, 3 - flat).requires_grad_()
        base = torch.cat([x, x])[1:4]
        view = pick(base)
        change(base)
        if is_written:
            view.mul_(2)
        loss = (view * numbers(*view.shape, device=device)).abs().sum()
        loss = loss + (base * numbers(*base.shape, device=device)).abs().sum()
        return view.detach().clone(), *torch.autograd.grad(loss, x)

    check(program)


def test_view_by_strides_in_inference_mode():
    def program(device):
        x = numbers(6, device=device)
        with torch.inference_mode():
            view = x.as_strided((2,), (3,), 1)
        assert not view.is_inference()
        return (view,)

    check(program)


@pytest.mark.parametrize("stride", [(1, 3), (4, 2), (0, 1), (1, 1)])
def test_empty_tensors_have_the_strides_asked_for(stride):
    def program(device):
        made = torch.empty_strided((3, 2), stride, device=device)
        like = numbers(2, device=device).new_empty_strided((3, 2), stride)
        for tensor in (made, like):
            size = tensor.untyped_storage().nbytes() // 4
            tensor.as_strided((size,), (1,)).copy_(numbers(size, device=device))
            tensor[1] = -1
        return made, like

    check(program)


def test_scatter_by_strides_reaches_all_memory():
    def program(device):
        memory, source = numbers(8, device=device), -torch.ones(2, device=device)
        parts = [memory, memory[2:], memory[::2], memory.view(2, 4).t(), memory[:1].expand(4)]
        return [torch.as_strided_scatter(part, source, (2,), (1,), 1) for part in parts]

    check(program)


@pytest.mark.parametrize("layout", ["transposed", "gaps", "offset"])
def test_gradient_lies_as_its_leaf_does_and_takes_more(layout):
    def program(device):
        memory = numbers(4, 4, device=device)
        parts = {"transposed": memory.t(), "gaps": memory[:, ::2], "offset": memory[1:]}
        x = parts[layout].detach().requires_grad_()
        x.sum().backward()
        first = x.grad.clone()
        x.sum().backward()
        (x * x).sum().backward()
        x.grad.mul_(0.5)
        return first, x.grad

    check(program)


def test_repeated_elements_are_not_contiguous():
    for device in ("cpu", "xla"):
        x = numbers(3, device=device)
        assert not x.expand(2, 3).is_contiguous()
        assert not x.expand(2, 3).detach().is_contiguous()
        assert x.expand(1, 3).is_contiguous()
        assert x.expand(2, 3).contiguous().add_(1).tolist() == [[1, 2, 3]] * 2


def test_masked_fill_gives_a_row_major_result():
    def program(device):
        x = numbers(3, 3, device=device).t() * 1
        mask = torch.eye(3, dtype=torch.bool, device=device)
        return x.masked_fill(mask, 0.5), x.masked_fill(mask, torch.tensor(0.5))

    check(program)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_linear_keeps_only_what_its_gradients_need(is_frozen):
    def program(device):
        x = numbers(2, 3, device=device).requires_grad_(is_frozen)
        weight = numbers(4, 3, device=device).requires_grad_(not is_frozen)
        rows, matrix = x * 1, weight * 1
        y = functional.linear(rows, matrix)
        with torch.no_grad():
            (rows if is_frozen else matrix).mul_(2)
        return y, *torch.autograd.grad(y.sum(), x if is_frozen else weight)

    check(program)


def test_constant_gradient_of_linear_requires_none():
    for device in ("cpu", "xla"):
        x = numbers(2, 3, device=device).requires_grad_()
        weight = numbers(4, 3, device=device).requires_grad_()
        y = functional.linear(x, weight)
        of_x, of_weight = torch.autograd.grad(y.sum(), (x, weight), create_graph=True)
        assert of_x.requires_grad and of_weight.requires_grad
        y = functional.linear(x, weight.detach())
        assert not torch.autograd.grad(y.sum(), x, create_graph=True)[0].requires_grad


def test_resolved_conjugate_is_a_copy():
    def program(device):
        x = torch.complex(numbers(3, device=device), numbers(3, device=device))
        x.conj().resolve_conj().mul_(2)
        x.conj().real.resolve_conj().mul_(2)
        x.resolve_conj().add_(1)
        x.conj().conj().resolve_conj().add_(1)
        return (x,)

    check(program)


_CHOICES = (torch.max, torch.min, torch.median, torch.nanmedian)


@pytest.mark.parametrize("choose", _CHOICES)
@pytest.mark.parametrize("case", ["", "all equal", "NaN", "infinite"])
def test_gradients_of_one_number_of_all_look_at_none(choose, case):
    def program(device):
        x = torch.tensor([[3.0, -1.0, 3.0], [-1.0, 2.0, 2.0]], device=device)
        if case == "all equal":
            x.fill_(2.0)
        elif case:
            x[0, 1] = float("nan" if case == "NaN" else "inf")
        x.requires_grad_()
        y = choose(x * x.detach().sign())
        (grad,) = torch.autograd.grad(y.square(), x, create_graph=True)
        return y.detach(), grad.detach(), torch.autograd.grad(grad.sum(), x)[0]

    metrics.clear_counters()
    results = program("xla")
    assert metrics.counter_value("aten::_local_scalar_dense") is None
    for mine, theirs in zip(results, program("cpu"), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x, choose=choose: choose(x) for choose in _CHOICES),
        *(lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.cumprod(0), lambda x: x.sum(0)),
    ],
)
def test_of_no_gradient_comes_none(function, device):
    x = torch.rand(2, 3, device=device, requires_grad=True)
    y = Nothing.apply(function(x))
    assert torch.autograd.grad(y.sum(), x, allow_unused=True) == (None,)
