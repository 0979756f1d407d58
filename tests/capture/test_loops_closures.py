"""Gradients of what the functions of loops and pure functions take from elsewhere: as for a Python
loop on the CPU."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
from counts import counted
from torch._functorch.partitioners import min_cut_rematerialization_partition

import torch_xla
import torch_xla.debug.metrics as metrics
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.experimental.fori_loop import fori_loop, while_loop
from torch_xla.experimental.scan import default_partition, scan
from torch_xla.experimental.scan_layers import scan_layers


def unrolled(function, carry, xs, **options):
    del options
    ys = []
    for x in xs:
        carry, y = function(carry, x)
        ys.append(y)
    return carry, torch.stack(ys)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w, grad * x


def check(program, options=None, dtype=torch.float32, rtol=1e-4):
    """`program(loop, device, w, b, x)` gives the same on both devices, with the gradients of w and
    b."""
    found = []
    for device, loop in (("cpu", unrolled), ("xla", scan)):
        torch.manual_seed(0)
        tensors = [torch.randn(n, dtype=dtype) for n in [(3, 3), (6,), (4, 2, 3)]]
        w, b, x = (tensor.to(device) for tensor in tensors)
        w.requires_grad_()
        b.requires_grad_()

        def with_options(*args, loop=loop):
            return loop(*args, **(options or {}))

        results = [*program(with_options, device, w, b, x), w.grad, b.grad]
        found.append([r if r is None else r.detach().cpu() for r in results])
    for want, got in zip(*found, strict=True):
        assert (want is None) == (got is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=rtol, atol=rtol)


def zeros(device, dtype=torch.float32):
    return torch.zeros(2, 3, device=device, dtype=dtype)


def trained(loop, function, carry, x, also=0):
    last, ys = loop(function, carry, x)
    (last.sum() + ys.square().sum() + also).backward()
    return last, ys


def leaves(loop, device, w, b, x):
    def turn(c, t):  # w is used twice here, once outside, and b through views
        h = torch.tanh(c @ w + t @ w + b[:3] + b[3:])
        return h, h * w.sum()

    return trained(loop, turn, zeros(device, w.dtype), x, also=w.cos().sum())


def views_and_computed(loop, device, w, b, x):
    transposed, row, part = w.t(), w[1], (b * 2)[:3]

    def turn(c, t):
        h = torch.tanh(c @ transposed + t @ w + part)
        return h, h * row + part.narrow(0, 0, 1)

    return trained(loop, turn, zeros(device), x, also=part.sum())


def leaf_and_what_was_computed_of_it(loop, device, w, b, x):
    del b
    double = w * 2
    x.requires_grad_()
    got = trained(loop, lambda c, t: (torch.tanh(c @ double + t @ w), t @ double), zeros(device), x)
    return *got, x.grad


def some_results(loop, device, w, b, x):
    last, ys = loop(lambda c, t: (c + b.detach()[:3], t @ w), zeros(device), x)
    ys.sum().backward()
    return last, ys


def returned(loop, device, w, b, x):
    last, ys = loop(lambda c, t: (c + t, w), zeros(device), x)
    (ys.square().sum() + last.sum() * b.sum()).backward()
    return last, ys


def nested(loop, device, w, b, x):
    def inner(c, t):
        return torch.tanh(c * b[:3] + t), c @ w

    def turn(c, t):
        c, ys = loop(inner, c, torch.stack([t, t + 1]))
        return c, ys.sum() * w[0, 0]

    return trained(loop, turn, zeros(device), x)


def recomputed(loop, device, w, b, x):
    def part(c, t):
        return torch.tanh(c @ w + t).sin()

    def turn(c, t):
        return torch.utils.checkpoint.checkpoint(part, c, t, use_reentrant=False), t * b[:3]

    return trained(loop, turn, zeros(device), x)


def differentiated_inside(loop, device, w, b, x):
    def turn(c, t):
        (grad,) = torch.autograd.grad((t @ w).sin().sum(), w, create_graph=True)
        return c + t @ grad, t * b[3:]

    return trained(loop, turn, zeros(device), x)


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize(
    "program",
    [leaves, views_and_computed, leaf_and_what_was_computed_of_it, some_results, returned],
)
def test_gradients_reach_what_the_function_takes_from_elsewhere(device, program, partition_fn):
    del device
    check(program, {"partition_fn": partition_fn})


@pytest.mark.parametrize("program", [nested, recomputed, differentiated_inside])
def test_functions_that_differentiate_or_loop_themselves(device, program):
    del device
    check(program)


@pytest.mark.parametrize("is_fn_pure", [False, True])
def test_double_precision_and_hooks(device, is_fn_pure):
    del device
    calls = []

    def program(loop, device, w, b, x):
        if device == "cpu":
            w.register_hook(lambda grad: grad * 3)
        else:
            w.register_hook(lambda grad: calls.append(1) or grad * 3)
        return leaves(loop, device, w, b, x)

    check(program, {"is_fn_pure": is_fn_pure}, torch.float64, 1e-10)
    assert len(calls) == 1


@pytest.mark.parametrize("is_direct", [False, True])
def test_autograd_functions_of_the_users_own(device, is_direct):
    del device

    def program(loop, device, w, b, x):
        outside = torch.ones(3, device=device, requires_grad=True)
        product = Product.apply if is_direct else lambda t, w: Product.apply(t, w * 1)

        def turn(c, t):
            return product(c, outside) + t @ w, Product.apply(t, b[:3])

        return *trained(loop, turn, zeros(device), x), outside.grad

    check(program)


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize("is_fn_pure", [False, True])
def test_modules_of_loops_train(device, is_fn_pure, partition_fn):
    del device

    def program(loop, device, w, b, x):
        torch.manual_seed(1)
        cell = torch.nn.GRUCell(3, 3).to(device)
        optimizer = torch.optim.SGD(cell.parameters(), 0.5)

        def turn(c, t):
            c = cell(t, c)
            return c, c

        seen = []
        for _ in range(3):
            with torch.no_grad():
                seen.append(loop(turn, zeros(device), x)[1])
            optimizer.zero_grad()
            seen += trained(loop, turn, zeros(device), x)
            optimizer.step()
        return [*seen, *cell.parameters()]

    check(program, {"is_fn_pure": is_fn_pure, "partition_fn": partition_fn})


def test_one_loop_forwards_and_one_back_compiled_once(device):
    w = torch.randn(3, 3, device=device, requires_grad=True)
    x = torch.randn(5, 2, 3, device=device)
    start = zeros(device)
    torch_xla.sync()

    def step():
        last, _ = scan(lambda c, t: (torch.tanh(c @ w + t), None), start, x)
        w.grad = None
        last.sum().backward()
        text = torch_xla._XLAC._get_xla_tensors_stablehlo([w.grad])
        torch_xla.sync()
        return text

    assert step().count("stablehlo.while") == 2
    with counted() as counts:
        step()
        step()
    assert (counts.compiled, counts.executed) == (0, 2)


def test_barriers_between_forward_and_backward(device):
    w = torch.randn(3, 3, device=device, requires_grad=True)
    x = torch.randn(2, 2, 3, device=device)

    def step(loop, w, x, barrier):
        def inner(c, t):
            return torch.tanh(c @ w + t), c @ w

        def turn(c, t):
            c, ys = loop(inner, c, torch.stack([t, t * 2]))
            return c, ys.sum()

        last, ys = loop(turn, zeros(w.device), x)
        barrier()
        (last.sum() + ys.sum()).backward()
        barrier()
        gradient, w.grad = w.grad.cpu(), None
        return gradient

    expected = step(unrolled, w.detach().cpu().requires_grad_(), x.cpu(), lambda: None)
    for _ in range(20):  # a thread held on to tensors of the capture for a moment
        found = step(scan, w, x, torch_xla.sync)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
def test_loops_leave_no_tensors_behind(device, partition_fn):
    w = torch.randn(3, 3, device=device, requires_grad=True)
    x = torch.randn(4, 2, 3, device=device)

    def step():
        last, _ = scan(lambda c, t: (torch.tanh(c @ w + t), None), zeros(device), x, partition_fn)
        last.sum().backward()

    def live():
        gc.collect()
        made, freed = (metrics.counter_value(f"{what}XlaTensor") for what in ("Create", "Destroy"))
        return made - freed

    step()
    before = live()
    for _ in range(3):
        step()
    assert live() == before


def test_no_turn_keeps_what_all_turns_share(device):
    w = torch.randn(3, 6, device=device, requires_grad=True)
    x = torch.randn(7, 2, 3, device=device)
    torch_xla.sync()

    def turn(c, t):
        left, right = w.chunk(2, 1)
        return torch.tanh(c @ left + t @ right), None

    last, _ = scan(turn, zeros(device), x)
    last.sum().backward()
    text = torch_xla._XLAC._get_xla_tensors_stablehlo([w.grad])
    assert "tensor<7x2x3xf32>" in text
    assert "tensor<7x3x3xf32>" not in text and "tensor<7x3x6xf32>" not in text


def test_scanned_layers_share_a_parameter(device):
    class Layer(torch.nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.own = torch.nn.Linear(3, 3)
            self.shared = [shared]  # in a list: none of the module's own parameters

        def forward(self, x):
            return torch.tanh(self.own(x) @ self.shared[0])

    found = []
    for where, is_scanned in (("cpu", False), (device, True)):
        torch.manual_seed(0)
        shared = torch.nn.Parameter(torch.randn(3, 3).to(where))
        layers = torch.nn.ModuleList(Layer(shared) for _ in range(3)).to(where)
        x = torch.randn(2, 3).to(where)
        if is_scanned:
            y = scan_layers(layers, x)
        else:
            y = x
            for layer in layers:
                y = layer(y)
        y.square().sum().backward()
        found.append([y, shared.grad, *(p.grad for p in layers.parameters())])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bounds", ["numbers", "tensors"])
def test_fori_loop_of_what_the_body_takes_from_elsewhere(device, bounds):
    found = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        w, scale = torch.randn(3, 3).to(where), torch.tensor(0.5).to(where)
        w.requires_grad_()
        scale.requires_grad_()

        def body(i, c, w=w, scale=scale):
            return torch.tanh(c @ w * scale + i)

        c = zeros(where)
        if where == "cpu":
            for i in range(1, 4):
                c = body(i, c)
        else:
            limits = [1, 4]
            if bounds == "tensors":
                limits = [torch.tensor(n, device=device) for n in limits]
            c = fori_loop(*limits, body, c)
        c.sum().backward()
        found.append([c.detach(), w.grad, scale.grad])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


def test_while_loop_says_that_its_body_has_no_gradients_to_give(device):
    w = torch.ones(2, device=device, requires_grad=True)
    start = (torch.ones(2, device=device), torch.tensor(0, device=device))
    result, count = while_loop(lambda v, i: i < 3, lambda v, i: (v * 2 * w, i + 1), start)
    assert result.tolist() == [8, 8] and not count.requires_grad
    with pytest.raises(RuntimeError, match="use fori_loop or scan"):
        result.sum().backward()
    with torch.no_grad():
        assert not while_loop(lambda v, i: i < 3, lambda v, i: (v * w, i + 1), start)[
            0
        ].requires_grad


def test_pure_functions_read_parameters_as_they_are_now(device):
    found = []
    recorded = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).to(where)
        x = torch.randn(4, 3).to(where)

        def function(t, model=model, where=where):
            recorded.append(where)
            return model(t) * model[0].weight.sum()

        call = function if where == "cpu" else assume_pure(function)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        seen = []
        for _ in range(3):
            with torch.no_grad():
                seen.append(call(x))
            loss = call(x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss)
        tracked = x.clone().requires_grad_()
        call(tracked).sum().backward()
        model.requires_grad_(False)
        seen += [tracked.grad, call(x), *model.parameters()]
        found.append(seen)
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-4, atol=1e-4)
    # Without gradients, with those of the parameters and with all of them; both of the latter are
    # recorded backwards, too.
    assert recorded.count(device) <= 5


def test_pure_function_within_a_loop(device):
    del device

    def program(loop, device, w, b, x):
        def function(t):
            return torch.tanh(t @ w + b[:3])

        pure = function if device == "cpu" else assume_pure(function)

        def turn(c, t):
            c = pure(c + t)
            return c, c

        trained(loop, turn, zeros(device), x)
        return trained(loop, turn, zeros(device), x)

    check(program)


def test_what_would_be_lost_or_wrong_is_said(device):
    weight = torch.full((2,), 3.0, device=device, requires_grad=True)
    start, xs = torch.ones(2, device=device), torch.zeros(2, 2, device=device)
    computed = weight * 1
    with pytest.warns(UserWarning, match=rf"float32\[2\] that requires .* \(at .*{__name__}.py:"):
        got = assume_pure(lambda c: c * computed)(start)
    assert got.tolist() == [3, 3] and not got.requires_grad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert assume_pure(lambda c: c * weight)(start).requires_grad
        with torch.no_grad():
            assert not assume_pure(lambda c: c * computed)(start).requires_grad

    def writes(c, x):
        with torch.no_grad():
            weight.mul_(2)
        return c * weight, x

    with pytest.raises(RuntimeError, match="writes to a float32\\[2\\] that it takes from elsewhe"):
        scan(writes, start, xs)
    assert weight.tolist() == [3, 3]
    # As PyTorch says it.
    last, _ = scan(lambda c, x: (c * computed, x), start, xs)
    computed.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        last.sum().backward()
    table = torch.arange(2.0, device=device)
    torch_xla.sync()
    last, _ = scan(lambda c, x: (c * weight * table, x), start, xs)
    table.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        last.sum().backward()
