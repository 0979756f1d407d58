"""`torch_xla.compile`, compile options, eager mode, step closures and pure functions: what becomes
a program, and when."""

from __future__ import annotations

import threading

import pytest
import torch
from counts import counted

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import experimental
from torch_xla.experimental.assume_pure import PureModule, assume_pure


def test_call_of_a_compiled_function_is_one_program():
    x = torch.randn(3, device="xla")

    def step(t):
        return (t * 2).sin() + 1

    compiled = torch_xla.compile(step)
    compiled(x)
    with counted() as counts:
        pending = x + 5  # belongs to the program before
        y = compiled(x)
    assert (counts.compiled, counts.executed) == (1, 2)
    torch.testing.assert_close(y.cpu(), (x.cpu() * 2).sin() + 1)
    assert pending is not None


@pytest.mark.parametrize("how", ["wrapper", "decorator", "decorator with arguments", "context"])
def test_ways_to_compile(how):
    x = torch.ones(3, device="xla")

    def step(t):
        return t * 3

    if how == "context":
        with counted() as counts, torch_xla.compile(name="tripled"):
            y = step(x)
    else:
        if how == "wrapper":
            step = torch_xla.compile(step, name="tripled")
        elif how == "decorator":
            step = torch_xla.compile(step)
        else:
            step = torch_xla.compile(full_graph=True)(step)
        assert step.__name__ == "step"
        with counted() as counts:
            y = step(x)
    assert counts.executed == 1
    assert y.tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    "surprise", [lambda t: t.sum().item(), lambda t: torch_xla.sync(), lambda t: print(t)]
)
def test_full_graph_raises_on_a_surprise(surprise):
    @torch_xla.compile(full_graph=True)
    def step(t):
        u = t + 1
        surprise(u)
        return u

    with pytest.raises(RuntimeError, match="must be one program"):
        step(torch.ones(2, device="xla"))
    # What was recorded is whole.
    assert (torch.ones(2, device="xla") + 1).tolist() == [2, 2]


def test_more_different_graphs_than_allowed_raise():
    torch_xla._XLAC._clear_compilation_cache()  # with what is known of sizes

    @torch_xla.compile(max_different_graphs=2)
    def step(t):
        return t + 1

    for _ in range(3):
        step(torch.ones(2, device="xla"))
        step(torch.ones(6, device="xla"))
    with pytest.raises(RuntimeError, match=r"step has run 3 different programs.*is 2"):
        step(torch.ones(9, device="xla"))


def test_compile_options_are_part_of_the_key_and_reach_the_compiler():
    x = torch.ones(5, device="xla")
    torch_xla.sync()

    def step():
        y = x.exp() + 1
        torch_xla.sync()
        return y

    step()
    torch_xla.set_custom_compile_options({"xla_cpu_enable_fast_math": True})
    try:
        with counted() as counts:
            step()
            step()
        assert counts.compiled == 1
        torch_xla.set_custom_compile_options({"xla_no_such_flag": True})
        with pytest.raises(RuntimeError, match="xla_no_such_flag"):
            step()
    finally:
        torch_xla.set_custom_compile_options({})
    with counted() as counts:
        step()
    assert counts.compiled == 0


def test_options_of_one_function_hold_for_it_alone():
    x = torch.ones(6, device="xla")
    with_flag = torch_xla.compile(
        lambda: x.exp() * 2, custom_compile_options={"xla_cpu_enable_fast_math": True}
    )
    without = torch_xla.compile(lambda: x.exp() * 2)
    with counted() as counts:
        with_flag()
        without()
        with_flag()
        without()
    assert counts.compiled == 2


def test_eager_mode_runs_without_a_barrier():
    x = torch.ones(4, device="xla")
    torch_xla.sync()
    before = torch_xla._XLAC._computation_stats()[1]
    with experimental.eager_mode_context(True):
        assert experimental.is_eager_mode()
        for _ in range(300):
            x = x * 1.01 + 0.5
        executed = torch_xla._XLAC._computation_stats()[1] - before
    assert not experimental.is_eager_mode()
    assert executed >= 600 // 128
    want = torch.ones(4)
    for _ in range(300):
        want = want * 1.01 + 0.5
    torch.testing.assert_close(x.cpu(), want, rtol=1e-4, atol=1e-4)


def test_eager_mode_contexts_of_threads_leave_each_other_alone():
    entered, left = threading.Event(), threading.Event()
    seen = []

    def first():
        with experimental.eager_mode_context(True):
            entered.set()
            left.wait()
            seen.append(experimental.is_eager_mode())

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    with experimental.eager_mode_context(True):
        assert experimental.is_eager_mode()
    assert not experimental.is_eager_mode()
    left.set()
    thread.join()
    assert seen == [True]
    assert not experimental.is_eager_mode()


def test_eager_mode_outlives_a_context_inside_of_compile():
    experimental.eager_mode(True)
    try:
        with torch_xla.compile(), experimental.eager_mode_context(False):
            assert not experimental.is_eager_mode()
        assert experimental.is_eager_mode()
        with experimental.eager_mode_context(False):
            experimental.eager_mode(True)
            assert experimental.is_eager_mode()
            experimental.eager_mode(False)
        assert experimental.is_eager_mode()
    finally:
        experimental.eager_mode(False)


def test_eager_mode_finds_the_programs_of_a_loop_again():
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    ).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        loss = model(torch.ones(3, 8, device="xla")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with experimental.eager_mode_context(True):
        for _ in range(8):
            step()
        before = torch_xla._XLAC._computation_stats()
        for _ in range(5):
            step()
        after = torch_xla._XLAC._computation_stats()
    assert after[1] > before[1]
    assert after[0] - before[0] <= 2


def test_compile_is_one_program_in_eager_mode():
    x = torch.ones(4, device="xla")

    @torch_xla.compile
    def step(t):
        for _ in range(100):
            t = t + 1
        return t

    with experimental.eager_mode_context(True):
        step(x)
        torch_xla.sync()
        before = torch_xla._XLAC._computation_stats()[1]
        step(x)
        assert torch_xla._XLAC._computation_stats()[1] - before == 1
        assert experimental.is_eager_mode()


def test_step_closures_run_after_the_barrier():
    seen = []
    x = torch.ones(2, device="xla") * 3
    xm.add_step_closure(lambda t: seen.append(t.tolist()), args=(x,))
    xm.add_step_closure(lambda: seen.append("asynchronous"), run_async=True)
    assert seen == []
    torch_xla.sync()
    xm.wait_device_ops()
    assert sorted(map(str, seen)) == ["[3.0, 3.0]", "asynchronous"]


def test_pure_function_is_called_once_per_types():
    calls = []

    @assume_pure
    def layer(tensors, scale):
        calls.append(scale)
        x, w = tensors
        return {"out": torch.tanh(x @ w) * scale, "scale": scale}

    x, w = torch.randn(3, 4), torch.randn(4, 5)
    for scale in (2, 2, 3, 3):
        got = layer((x.to("xla"), w.to("xla")), scale)
        assert got["scale"] == scale
        torch.testing.assert_close(got["out"].cpu(), torch.tanh(x @ w) * scale)
    layer((x[:2].to("xla"), w.to("xla")), 3)
    assert calls == [2, 3, 3]


def test_pure_function_has_gradients_and_new_random_numbers():
    dropped = assume_pure(lambda t: torch.nn.functional.dropout(t * 2, 0.5))
    masks = []
    for _ in range(3):
        x = torch.ones(64, device="xla", requires_grad=True)
        y = dropped(x)
        y.sum().backward()
        # The backward pass has the mask of the forward pass.
        assert torch.equal(x.grad.cpu(), y.detach().cpu())
        masks.append(y.detach().cpu())
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[1], masks[2])


def test_pure_function_with_a_seed_repeats_its_random_numbers():
    noisy = assume_pure(lambda t: t + torch.rand_like(t), add_rng_seed_argument=True)
    x = torch.zeros(8, device="xla", requires_grad=True)
    state = xm.get_rng_state()
    first, other = noisy(x, rng_seed=5), noisy(x, rng_seed=6)
    assert xm.get_rng_state() == state
    assert torch.equal(first.cpu(), noisy(x, rng_seed=torch.tensor(5)).cpu())
    assert not torch.equal(first.cpu(), other.cpu())
    assert not torch.equal(noisy(x).cpu(), noisy(x).cpu())
    first.sum().backward()
    assert x.grad.tolist() == [1] * 8


def test_pure_function_is_one_program_with_what_is_around_it():
    square = assume_pure(lambda t: t * t)
    x = torch.ones(3, device="xla", requires_grad=True)

    def step():
        (square(x + 1) * 3).sum().backward()
        torch_xla.sync()

    step()
    with counted() as counts:
        step()
        step()
    assert (counts.compiled <= 1, counts.executed) == (True, 2)
    assert x.grad.tolist() == [36, 36, 36]


def test_pure_module_trains_as_the_module():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module = module.to("xla")
    x = torch.randn(5, 3, device="xla")
    module(x).sum().backward()
    want = [p.grad.cpu() for p in module.parameters()]
    module.zero_grad()
    PureModule(module)(x).sum().backward()
    for parameter, grad in zip(module.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), grad)


def test_pure_function_that_reads_or_writes_is_refused():
    x = torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match="while the function was being captured"):
        assume_pure(lambda t: t * t.sum().item())(x)
    with pytest.raises(RuntimeError, match="writes to its argument"):
        assume_pure(lambda t: t.add_(1))(x)
    with pytest.raises(RuntimeError, match="a barrier inside of a function"):
        assume_pure(lambda t: torch_xla.sync())(x)
    assert (x + 1).tolist() == [2, 2]


def test_older_views_can_be_read_after_a_function_that_reads_them():
    base = torch.arange(6.0, device="xla") * 2
    view = base.view(2, 3).t()
    got = assume_pure(lambda t: t @ view)(torch.ones(2, 3, device="xla"))
    assert got.tolist() == [[6, 24]] * 2
    assert view.tolist() == [[0, 6], [2, 8], [4, 10]]
    base.add_(1)
    assert view.tolist() == [[1, 7], [3, 9], [5, 11]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch_xla.compile(3), "expected a function, got int"),
        (lambda: torch_xla.compile(max_different_graphs="2"), "must be a number, got '2'"),
        (lambda: torch_xla.compile(dynamic="yes"), "True, False or None, got 'yes'"),
        (lambda: torch_xla.compile(custom_compile_options=[1]), "expected a dict of XLA flags"),
        (lambda: torch_xla.set_custom_compile_options(None), "expected a dict of XLA flags"),
        (lambda: torch_xla.set_custom_compile_options({1: 1}), "got 1: 1"),
        (lambda: torch_xla.set_custom_compile_options({"a": None}), "got 'a': None"),
        (lambda: xm.add_step_closure(3), "add_step_closure: expected a function, got int"),
    ],
)
def test_arguments_are_checked_at_the_call(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_nested_and_repeated_steps(device):
    x = torch.ones(2, device=device)
    context = torch_xla.compile()
    with context, context, torch_xla.step(), torch_xla.step():
        y = x + 3
    inner = torch_xla.compile(lambda t: t + 1)
    outer = torch_xla.compile(lambda t: inner(t) * 2)

    @torch_xla.compile
    def countdown(t, n):
        return t if n == 0 else countdown(t + 1, n - 1)

    assert y.tolist() == [4, 4]
    assert outer(x).tolist() == [4, 4] and countdown(x, 3).tolist() == [4, 4]


def test_closures_that_add_closures_and_that_fail(device):
    seen = []
    xm.add_step_closure(lambda: xm.add_step_closure(seen.append, args=("inner",)))
    xm.add_step_closure(lambda t: seen.append(t.tolist()), args=(torch.ones(2, device=device),))
    torch_xla.sync()
    assert seen == [[1, 1]]
    torch_xla.sync()
    assert seen == [[1, 1], "inner"]
    xm.add_step_closure(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        torch_xla.sync()
    torch_xla.sync()
