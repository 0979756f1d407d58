"""Loops and branches that are one operation of the program: scan, while, cond, with gradients."""

from __future__ import annotations

import pytest
import torch
from counts import counted
from torch._functorch.partitioners import min_cut_rematerialization_partition

import torch_xla
from torch_xla.experimental.fori_loop import fori_loop, while_loop
from torch_xla.experimental.gradient_accumulation import gradient_accumulation
from torch_xla.experimental.gru import GRU
from torch_xla.experimental.scan import default_partition, scan
from torch_xla.experimental.scan_layers import scan_layers


def cell(carry, x):
    hidden, count = carry
    hidden = torch.tanh(hidden @ x["w"] + x["b"])
    return (hidden, count + 1), (hidden.sum(), {"twice": hidden * 2})


def loop(fn, init, xs):
    carry, ys = init, []
    for i in range(len(xs["w"])):
        carry, y = fn(carry, {name: value[i] for name, value in xs.items()})
        ys.append(y)
    sums = torch.stack([y[0] for y in ys])
    return carry, (sums, {"twice": torch.stack([y[1]["twice"] for y in ys])})


def operands(device):
    torch.manual_seed(0)
    init = (torch.randn(2, 3), torch.tensor(0))
    xs = {"w": torch.randn(5, 3, 3), "b": torch.randn(5, 3)}
    init = (init[0].to(device).requires_grad_(), init[1].to(device))
    return init, {name: x.to(device).requires_grad_() for name, x in xs.items()}


def run(function, device):
    init, xs = operands(device)
    (hidden, count), (sums, rest) = function(cell, init, xs)
    (hidden.sum() + (sums**2).sum() + rest["twice"].cos().sum()).backward()
    return [hidden, count, sums, rest["twice"], init[0].grad, xs["w"].grad, xs["b"].grad]


def test_scan_is_the_loop_with_its_gradients():
    got, want = run(scan, "xla"), run(loop, "cpu")
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=1e-4, atol=1e-4)


def test_scan_is_one_while_whatever_its_length():
    def programs(length):
        init = torch.zeros(2, device="xla")
        xs = torch.ones(length, 2, device="xla")
        torch_xla.sync()
        result = scan(lambda c, x: (c + x, c * x), init, xs)
        text = torch_xla._XLAC._pending_program(0)
        assert result[0].tolist() == [length, length]
        assert result[1].tolist() == [[i, i] for i in range(length)]
        return text

    short, long = programs(4), programs(40)
    assert short.count("stablehlo.while") == long.count("stablehlo.while") == 1
    assert short.count("\n") == long.count("\n")


def test_scan_of_a_pure_function_calls_it_once():
    calls = []

    def add(carry, x):
        calls.append(1)
        return carry + x, None

    for _ in range(3):
        total, nothing = scan(
            add, torch.zeros((), device="xla"), torch.ones(4, device="xla"), is_fn_pure=True
        )
        assert (total.item(), nothing) == (4, None)
    assert len(calls) == 1


def test_random_numbers_differ_between_turns_and_agree_with_the_backward_pass():
    def drop(carry, x):
        y = torch.nn.functional.dropout(x, 0.5)
        return carry, y

    xs = torch.ones(6, 64, device="xla", requires_grad=True)
    _, ys = scan(drop, torch.zeros((), device="xla"), xs)
    ys.sum().backward()
    assert torch.equal(xs.grad.cpu(), ys.detach().cpu())
    assert len({tuple(row) for row in ys.tolist()}) == 6


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize("has_grad", [False, True])
def test_scan_writes_to_what_it_carries(has_grad, partition_fn):
    def accumulate(carry, x):
        total, count = carry
        total += x * x
        total[0] *= 2
        count += 1
        return (total, count), total

    def loop(init, xs):
        carry, ys = init, []
        for x in xs:
            carry, y = accumulate(tuple(c.clone() for c in carry), x)
            ys.append(y)
        return carry, torch.stack(ys)

    def run(function, device):
        init = torch.ones(3, device=device).requires_grad_(has_grad)
        xs = torch.arange(12.0).reshape(4, 3).to(device).requires_grad_(has_grad)
        count = torch.zeros((), dtype=torch.int64, device=device)
        (total, count_after), ys = function((init, count), xs)
        if has_grad:
            (total.sum() + (ys * ys).sum()).backward()
        assert init.tolist() == [1, 1, 1] and count.item() == 0 and count_after.item() == 4
        return [t.detach().cpu() for t in (total, ys)] + [init.grad, xs.grad]

    want = run(loop, "cpu")
    got = run(lambda init, xs: scan(accumulate, init, xs, partition_fn), "xla")
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(None if ours is None else ours.cpu(), theirs)


def test_scan_refuses_what_it_cannot_do():
    zero, ones = torch.zeros(2, device="xla"), torch.ones(3, 2, device="xla")
    with pytest.raises(RuntimeError, match="carried value 0 must be f32\\[2\\], got f32\\[1\\]"):
        scan(lambda c, x: (c[:1], x), zero, ones)
    with pytest.raises(ValueError, match="equal first sizes"):
        scan(lambda c, x: (c, c), zero, (ones, ones[:2]))
    with pytest.raises(RuntimeError, match="writes to its argument 1"):
        scan(lambda c, x: (c, x.add_(1)), zero, ones)
    with pytest.raises(RuntimeError, match="while the function was being captured"):
        scan(lambda c, x: (c, x) if c.sum() > 0 else (x, c), zero, ones)


def test_scan_layers_trains_as_the_layers():
    def make():
        torch.manual_seed(0)
        return torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            for _ in range(3)
        ).to("xla")

    x = torch.randn(2, 5, 8, device="xla")
    layers, scanned = make(), make()
    y = x
    for layer in layers:
        y = layer(y)
    y.square().mean().backward()
    z = scan_layers(scanned, x)
    z.square().mean().backward()
    torch.testing.assert_close(z.detach().cpu(), y.detach().cpu(), rtol=1e-4, atol=1e-4)
    for got, want in zip(scanned.parameters(), layers.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), want.grad.cpu(), rtol=1e-3, atol=1e-4)


def test_program_of_scanned_layers_does_not_grow_with_them():
    def lines(count):
        layers = [torch.nn.Linear(4, 4) for _ in range(count)]
        layers = torch.nn.ModuleList(layers).to("xla")
        x = torch.ones(2, 4, device="xla")
        torch_xla.sync()
        y = scan_layers(layers, x)
        text = torch_xla._XLAC._pending_program(0)
        assert y.shape == (2, 4)
        return text.count("stablehlo.dot_general")

    assert lines(3) == lines(12) == 1


def test_layers_that_differ_are_refused():
    layers = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, bias=False)]
    with pytest.raises(ValueError, match="layer 1 is not like the first"):
        scan_layers(torch.nn.ModuleList(layers).to("xla"), torch.ones(2, 4, device="xla"))


def test_while_loop_runs_until_the_condition_fails():
    with counted() as counts:
        left, x = while_loop(
            lambda i, x: i > 0,
            lambda i, x: (i - 1, x + 1),
            (torch.tensor(10, device="xla"), torch.tensor(3, device="xla")),
        )
        assert (left.item(), x.item()) == (0, 13)
    assert counts.executed <= 2


def test_torch_while_loop_is_a_loop_of_the_program():
    from torch._higher_order_ops.while_loop import while_loop as torch_while_loop

    start = (torch.tensor(10, device="xla"), torch.tensor(3, device="xla"))
    left, x = torch_while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x + 1), start)
    assert "stablehlo.while" in torch_xla._XLAC._pending_program(0)
    assert (left.item(), x.item()) == (0, 13)


def test_fori_loop_counts():
    one = torch.tensor(1.0, device="xla")
    assert fori_loop(2, 5, lambda i, x: x + i, one).item() == 10
    assert fori_loop(5, 2, lambda i, x: x + i, one).item() == 1
    bounds = torch.tensor(2, device="xla"), torch.tensor(5, device="xla")
    assert fori_loop(*bounds, lambda i, x: x + i, one).item() == 10
    a, b = fori_loop(0, 3, lambda i, a, b: (b, a + b), one, one)
    assert (a.item(), b.item()) == (3, 5)
    x = torch.tensor(2.0, device="xla", requires_grad=True)
    fori_loop(0, 3, lambda i, y: y * x.detach() * 1.0 + y, x).backward()
    assert x.grad.item() == pytest.approx(27)


def test_cond_is_a_branch_of_the_program_with_gradients():
    def choose(flag, x):
        return torch.cond(flag, lambda t: t.sin(), lambda t: t * t, (x,))

    for flag in (True, False):
        cpu = torch.randn(4, requires_grad=True)
        want = cpu.sin() if flag else cpu * cpu
        want.sum().backward()
        x = cpu.detach().to("xla").requires_grad_()
        predicate = torch.tensor(flag, device="xla")
        torch_xla.sync()
        with counted() as counts:
            got = choose(predicate, x)
            got.sum().backward()
            assert torch_xla._XLAC._pending_program(0).count("stablehlo.if") >= 1
        assert counts.executed == 0
        torch.testing.assert_close(got.detach().cpu(), want.detach())
        torch.testing.assert_close(x.grad.cpu(), cpu.grad)


def test_gradient_accumulation_adds_up_the_gradients():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).to("xla")
    x, y = torch.randn(4, 5, 3, device="xla"), torch.randn(4, 5, 2, device="xla")

    def train_step(inputs, targets, count):
        return torch.nn.functional.mse_loss(model(inputs), targets), count + 1

    total = 0.0
    for i in range(4):
        loss, _ = train_step(x[i], y[i], 0)
        loss.backward()
        total += loss.item()
    want = [p.grad.cpu() for p in model.parameters()]
    model.zero_grad()
    count = torch.tensor(0, device="xla")
    for round in (1, 2):
        loss, number = gradient_accumulation(train_step, (x, y), model, count)
        assert loss.item() == pytest.approx(total, rel=1e-5)
        assert number.item() == 4
        for parameter, grad in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(parameter.grad.cpu(), grad * round)


def two_products(carry, x):
    hidden = torch.tanh(torch.tanh(carry @ x) @ x)
    return hidden, hidden.sum()


def trained(partition_fn, calls):
    torch.manual_seed(0)
    init, xs = torch.randn(2, 3), torch.randn(4, 3, 3)
    init, xs = (t.to("xla").requires_grad_() for t in (init, xs))

    def counted_function(carry, x):
        calls.append(1)
        return two_products(carry, x)

    last, sums = scan(counted_function, init, xs, partition_fn=partition_fn)
    (last.sum() + sums.sum()).backward()
    text = torch_xla._XLAC._get_xla_tensors_stablehlo([init.grad, xs.grad])
    return init.grad.cpu(), xs.grad.cpu(), text


def test_scan_computes_nothing_twice_by_default():
    calls = []
    init_grad, xs_grad, text = trained(default_partition, calls)
    assert text.count("stablehlo.tanh") == 2
    assert len(calls) == 1
    torch.manual_seed(0)
    want_init, want_xs = torch.randn(2, 3).requires_grad_(), torch.randn(4, 3, 3).requires_grad_()
    carry, total = want_init, 0
    for x in want_xs:
        carry, y = two_products(carry, x)
        total = total + y
    (carry.sum() + total).backward()
    torch.testing.assert_close(init_grad, want_init.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(xs_grad, want_xs.grad, rtol=1e-4, atol=1e-4)


def test_scan_divides_its_function_as_it_is_told():
    seen = []

    def partition(joint, inputs, *, num_fwd_outputs, **options):
        seen.append(num_fwd_outputs)
        return min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **options
        )

    want = trained(default_partition, [])
    got = trained(partition, [])
    assert seen == [2]
    for g, w in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)


def test_scan_keeps_values_that_are_written_later_and_constants_once():
    table = torch.arange(4.0, device="xla") + 1
    torch_xla.sync()

    def cell(carry, x):
        y = carry * x
        out = y.sin() * table
        return out, y.add_(1)

    init, xs = torch.ones(4, device="xla"), torch.full((3, 4), 0.5, device="xla")
    init.requires_grad_()
    last, ys = scan(cell, init, xs)
    (last.sum() + ys.sum()).backward()
    want = torch.ones(4, requires_grad=True)
    carry, total = want, 0
    for _ in range(3):
        y = carry * 0.5
        carry, total = y.sin() * table.cpu(), total + (y + 1).sum()
    (carry.sum() + total).backward()
    torch.testing.assert_close(init.grad.cpu(), want.grad, rtol=1e-4, atol=1e-4)


def test_checkpoint_inside_of_scan():
    xs = torch.rand(3, 4, device="xla").requires_grad_()

    def cell(carry, x):
        y = torch.utils.checkpoint.checkpoint(
            lambda c, t: (c * t).sin().cos(), carry, x, use_reentrant=False
        )
        return y, None

    last, _ = scan(cell, torch.ones(4, device="xla"), xs)
    last.sum().backward()
    want = xs.detach().cpu().requires_grad_()
    carry = torch.ones(4)
    for x in want:
        carry = (carry * x).sin().cos()
    carry.sum().backward()
    torch.testing.assert_close(xs.grad.cpu(), want.grad, rtol=1e-4, atol=1e-4)


def test_gradients_through_bounds_that_are_tensors():
    x = torch.full((2,), 3.0, device="xla", requires_grad=True)
    lower, upper = torch.tensor(1, device="xla"), torch.tensor(4)
    fori_loop(lower, upper, lambda i, v: v * i, x).sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_while_loop_says_that_it_has_no_gradients():
    x = torch.ones(2, device="xla", requires_grad=True)
    result, _ = while_loop(
        lambda v, i: i < 3, lambda v, i: (v * 2, i + 1), (x, torch.tensor(0, device="xla"))
    )
    assert result.tolist() == [8, 8]
    with pytest.raises(RuntimeError, match="use fori_loop or scan"):
        result.sum().backward()


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"batch_first": True}])
def test_gru_as_a_loop_is_the_gru(options):
    torch.manual_seed(0)
    reference = torch.nn.GRU(3, 4, num_layers=2, **options)
    ours = GRU(3, 4, num_layers=2, **options)
    ours.load_state_dict(reference.state_dict())
    ours.to("xla")
    x = torch.randn(5, 2, 3)
    h = torch.randn(2, 5 if options.get("batch_first") else 2, 4)
    want = reference(x, h)
    got = ours(x.to("xla"), h.to("xla"))
    (want[0].sum() + want[1].sin().sum()).backward()
    (got[0].sum() + got[1].sin().sum()).backward()
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-4)
    for (name, p), q in zip(ours.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-3, atol=1e-4, msg=name)


def turns_with_gradients(count):
    """The text of a Python loop over cells that carry a sum, with its gradients."""
    weight = torch.randn(4, 4, device="xla", requires_grad=True)
    hidden, carried = (torch.randn(2, 4, device="xla") for _ in range(2))
    torch_xla.sync()
    for _ in range(count):
        gate = hidden @ weight
        carried = gate.sigmoid() * carried + gate.tanh()
        hidden = gate.sigmoid() * carried.tanh()
    hidden.sum().backward()
    return torch_xla._XLAC._pending_program(0)


def test_turns_of_a_python_loop_are_not_computed_again_in_each_other():
    # What is carried through them becomes memory every few turns: XLA would fuse all before it.
    short, long = (turns_with_gradients(n).count("optimization_barrier") for n in (16, 64))
    assert short >= 2
    assert 3 * short <= long <= 6 * short


def test_formulas_of_usual_length_are_fused_whole():
    x = torch.randn(4, 4, device="xla", requires_grad=True)
    torch_xla.sync()
    torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (4,))).sum().backward()
    assert "optimization_barrier" not in torch_xla._XLAC._pending_program(0)
