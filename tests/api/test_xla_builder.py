"""Operators written in XLA's own operations, and functions of JAX, against torch on the CPU."""

from __future__ import annotations

import pytest
import torch

import torch_xla
import torch_xla.core.xla_builder as xb
import torch_xla.core.xla_op_registry as xor
from torch_xla import _XLAC


def data(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def on_device(function, *tensors, **kwargs):
    """The function of `Op`s on tensors, back on the CPU."""
    return xor.register("test", function)(*(t.to("xla") for t in tensors), **kwargs).cpu()


def zeros_before(t):
    """Before the first set bit of 32-bit integers."""
    bits = t.long() & 0xFFFFFFFF
    return torch.tensor([32 - int(x).bit_length() for x in bits.flatten()]).reshape(t.shape).int()


X = data(4, 6)

# Each as XLA's semantics say, written in torch.
CASES = {
    "arithmetic": (lambda a: (1 - a) * a / 2 + a**2, lambda t: (1 - t) * t / 2 + t**2),
    "comparison": (lambda a: (a > 0) & (a <= 1), lambda t: (t > 0) & (t <= 1)),
    "functions": (lambda a: a.tanh().exp().log1p(), lambda t: t.tanh().exp().log1p()),
    "broadcast": (lambda a: a.broadcast((3,)), lambda t: t.expand(3, 4, 6)),
    "broadcast_in_dim": (
        lambda a: a.transpose((1, 0)).broadcast_in_dim((4, 2, 6), (2, 0)),
        lambda t: t[:, None].expand(4, 2, 6),
    ),
    "slice": (lambda a: a.slice((1, 0), (3, 6), (1, 2)), lambda t: t[1:3, 0:6:2]),
    "slice_in_dim": (lambda a: a.slice_in_dim(1, 5, 1, 2), lambda t: t[:, 1:5:2]),
    "dynamic_slice_is_moved_inside": (
        lambda a: a.dynamic_slice((xb.Op.scalar(a.builder(), 9, xb.Type.S32), 1), (2, 3)),
        lambda t: t[2:4, 1:4],
    ),
    "pad": (
        lambda a: a.pad(7.0, ((1, -1, 0), (0, 2, 1))),
        lambda t: torch.cat(
            [
                torch.full((1, 13), 7.0),
                torch.nn.functional.pad(
                    torch.stack([t, torch.full((4, 6), 7.0)], dim=2).reshape(4, 12)[:3, :11],
                    (0, 2),
                    value=7.0,
                ),
            ]
        ),
    ),
    "rev": (lambda a: a.rev((1,)), lambda t: t.flip(1)),
    "select_and_clamp": (
        lambda a: (a < 0).select(a.clamp(-0.5, 0.5), a.zeros_like()),
        lambda t: torch.where(t < 0, t.clamp(-0.5, 0.5), 0.0),
    ),
    "reduce": (
        lambda a: a.reduce(0.0, lambda x, y: x + y, (1,)),
        lambda t: t.sum(1),
    ),
    "reduce_all_with_max": (
        lambda a: a.reduce_all(-1e9, lambda x, y: x.max(y)),
        lambda t: t.max(),
    ),
    "reduce_window": (
        lambda a: a.reduce_window(-1e9, lambda x, y: x.max(y), (2, 2), (2, 2)),
        lambda t: torch.nn.functional.max_pool2d(t[None], 2)[0],
    ),
    "dot_general": (
        lambda a: a.reshape((2, 2, 6)).dot_general(
            a.reshape((2, 2, 6)), (((2,), (2,)), ((0,), (0,)))
        ),
        lambda t: torch.einsum("bij,bkj->bik", t.view(2, 2, 6), t.view(2, 2, 6)),
    ),
    "conv_same": (
        lambda a: a.reshape((1, 1, 4, 6)).conv(
            a.slice((0, 0), (3, 3)).reshape((1, 1, 3, 3)), (1, 1), padding="same"
        ),
        lambda t: torch.nn.functional.conv2d(
            t.view(1, 1, 4, 6), t[:3, :3].reshape(1, 1, 3, 3), padding=1
        ),
    ),
    "iota": (
        lambda a: a + xb.Op.iota(a.builder(), xb.mkshape(xb.Type.F32, (4, 6)), 1),
        lambda t: t + torch.arange(6.0),
    ),
    "cast": (lambda a: a.cast(xb.Type.S32), lambda t: t.int()),
    "sort": (lambda a: xb.Op.sort([a], dimension=0), lambda t: t.sort(0).values),
    "concat_in_dim": (
        lambda a: xb.Op.concat_in_dim([a, a + 1], 1),
        lambda t: torch.cat([t, t + 1], 1),
    ),
    "reshape_of_another_order": (
        lambda a: a.reshape((3, 8), (1, 0)),
        lambda t: t.t().reshape(3, 8),
    ),
    "map_and_call": (
        lambda a: xb.Op.map([a, xb.Op.call(lambda x: x * 2, [a])], lambda x, y: x + y, (0, 1)),
        lambda t: t * 3,
    ),
    "leading_zeros": (
        lambda a: a.bitcast(xb.Type.S32).clz() + (a * 300).cast(xb.Type.S32).clz(),
        lambda t: zeros_before(t.view(torch.int32)) + zeros_before((t * 300).int()),
    ),
    "max_pool": (
        lambda a: a.reshape((1, 4, 6, 1)).max_pool((2, 3), (2, 3), 0, 3, (1, 2)),
        lambda t: torch.nn.functional.max_pool2d(t[None], (2, 3))[..., None],
    ),
    "max_pool_same": (
        lambda a: a.reshape((1, 1, 4, 6)).max_pool(
            (1, 1, 3, 3), (1, 1, 1, 1), 0, 1, (2, 3), "same"
        ),
        lambda t: torch.nn.functional.max_pool2d(t[None, None], 3, 1, padding=1),
    ),
    # The input is (features, height, width, batch), the kernel (features out, height, features in,
    # width), the output (width, batch, features, height).
    "conv_in_other_places": (
        lambda a: a.reshape((2, 4, 3, 1)).conv_general_dilated(
            a.slice((0, 0), (2, 6)).reshape((3, 2, 2, 1)),
            (1, 1),
            ((1, 0), (0, 0)),
            (2, 1),
            (1, 1),
            3,
            0,
            2,
            0,
            1,
            2,
            (1, 2),
            (1, 3),
            (3, 0),
        ),
        lambda t: torch.nn.functional.conv2d(
            torch.nn.functional.pad(
                torch.stack([t.reshape(1, 2, 4, 3), torch.zeros(1, 2, 4, 3)], 3).reshape(
                    1, 2, 8, 3
                )[:, :, :7],
                (0, 0, 1, 0),
            ),
            t[:2].reshape(3, 2, 2, 1).permute(0, 2, 1, 3),
        ).permute(3, 0, 1, 2),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operation_is_as_xla_defines_it(case):
    ours, want = CASES[case]
    torch.testing.assert_close(on_device(ours, X), want(X), rtol=1e-4, atol=1e-5)


def test_update_of_a_slice_whose_place_is_data():
    def update(a, b, at):
        return a.dynamic_update_slice(b, (at, at))

    want = X.clone()
    want[1:3, 1:3] = 5
    got = on_device(update, X, torch.full((2, 2), 5.0), torch.tensor(1))
    torch.testing.assert_close(got, want)


def test_loops_and_branches():
    def halve_until_small(a):
        state = xb.Op.tuple([a, xb.Op.scalar(a.builder(), 0, xb.Type.S64)])
        end = state.while_loop(
            lambda s: s.get_tuple_element(0).reduce_all(0.0, lambda x, y: x + y) > 1.0,
            lambda s: xb.Op.tuple([s.get_tuple_element(0) / 2, s.get_tuple_element(1) + 1]),
        )
        count = end.get_tuple_element(1)
        return (count > 2).conditional(count, count, lambda n: n * 10, lambda n: n)

    # 16 -> 8 -> 4 -> 2 -> 1
    assert on_device(halve_until_small, torch.full((4,), 4.0)).item() == 40


def test_loops_and_branches_of_several_values():
    def program(a):
        zero = xb.Op.scalar(a.builder(), 0, xb.Type.S64)
        end = xb.Op.mkwhile(
            [a, zero],
            lambda x, n, by: x.reduce_all(0.0, lambda p, q: p + q) > 1.0,
            lambda x, n, by: xb.Op.tuple([x / by, n + 1]),
            by=2.0,
        )
        count = end.get_tuple_element(1)
        assert end.shape().tuple_size() == 2 and end.shape().tuple_shape(1) == count.shape()
        return (count > 2).mkconditional(
            [count, zero], lambda n, z: xb.Op.tuple([n, z]), lambda n, z: xb.Op.tuple([z, n])
        )

    count, zero = xor.register("program", program)(torch.full((4,), 4.0, device="xla"))
    assert (count.item(), zero.item()) == (4, 0)


def test_select_and_scatter_is_the_gradient_of_pooling():
    x, source = data(4, 6), data(2, 3)

    def backward(a, b):
        return a.select_and_scatter(
            b, 0.0, (2, 2), (2, 2), lambda p, q: p >= q, lambda p, q: p + q, "valid"
        )

    wanted = x.clone().requires_grad_()
    torch.nn.functional.max_pool2d(wanted[None], 2)[0].backward(source)
    torch.testing.assert_close(on_device(backward, x, source), wanted.grad)
    # Overlapping windows, at whose border is nothing.
    source = data(4, 6)
    wanted = x.clone().requires_grad_()
    torch.nn.functional.max_pool2d(wanted[None], 3, 1, padding=1)[0].backward(source)

    def overlapping(a, b):
        return a.select_and_scatter_with_general_padding(
            b, 0.0, (3, 3), (1, 1), lambda p, q: p >= q, lambda p, q: p + q, ((1, 1), (1, 1))
        )

    torch.testing.assert_close(on_device(overlapping, x, source), wanted.grad)


def test_functions_of_operations_and_computations_as_functions():
    shape = xb.mkshape(xb.Type.F32, (4, 6))
    add = xb.Op.make_computation("add", lambda a, b: a + b, [shape, xb.Op(X.to("xla"))])
    assert xb.Op.make_computation("again", add, []) is add
    function = xb.xla_computation_as_func(add)
    torch.testing.assert_close(function(X.to("xla"), X.to("xla")).cpu(), X * 2)
    assert xb.tensor_shape(X) == shape and xb.Op.to_torch_type(xb.Type.F32) == torch.float32
    assert xb.Op.from_torch_type(torch.bool) == xb.Type.PRED
    nested = xb.XlaCallable(lambda x, by: {"twice": x["a"] * by})
    torch.testing.assert_close(nested({"a": X.to("xla")}, by=2.0)["twice"].cpu(), X * 2)
    with pytest.raises(NotImplementedError, match="every size is a constant"):
        xb.Op(X.to("xla")).set_dimension_size(None, 0)


def test_operator_has_constants_tuples_and_gradients():
    op = xor.register("scale", lambda a, by: xb.Op.tuple([a * by, a.sin()]))
    t = X.to("xla").requires_grad_()
    scaled, sine = op(t, by=3.0)
    (scaled.sum() + sine.sum()).backward()
    torch.testing.assert_close(t.grad.cpu(), 3 + X.cos())
    with pytest.raises(TypeError, match="scale: argument 0 is not an XLA tensor"):
        op(X, by=1.0)


def test_computation_is_a_program_that_others_call():
    shape = xb.mkshape(xb.Type.F32, (4, 6))
    add = xb.create_computation("add", lambda a, b: a + b * 2, (shape, shape))
    assert "stablehlo.add" in xb.get_computation_hlo(add)
    builder = xb.create_builder("sub")
    built = (xb.mkparam(builder, 0, shape) - xb.mkparam(builder, 1, shape)).build("sub")
    got = on_device(lambda a, b: built(add(a, b), b), X, X + 1)
    torch.testing.assert_close(got, X + (X + 1))


def test_a_module_written_elsewhere_is_part_of_the_program():
    text = """
    module @jit_f attributes {note = "a { brace"} {
      func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
        %0 = call @twice(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32>
      }
      func.func private @twice(%arg0: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32>
        return %0 : tensor<2xf32>
      }
    }
    """
    other = text.replace("stablehlo.add", "stablehlo.multiply")
    shapes = [xb.mkshape(xb.Type.F32, (2,))]
    twice, square = (xb.computation_from_module_proto("f", t, shapes) for t in (text, other))
    x = torch.tensor([3.0, 4.0], device="xla")
    executed = _XLAC._computation_stats()[1]
    y = twice(square(twice(xb.Op(x)))).tensor + 1
    assert y.tolist() == [73, 129]
    assert _XLAC._computation_stats()[1] == executed + 1
    with pytest.raises(RuntimeError, match="must have a function @main"):
        xb.computation_from_module_proto("f", "module { }", shapes)(xb.Op(x)).tensor.tolist()


def test_function_of_jax_is_part_of_the_program():
    jnp = pytest.importorskip("jax.numpy")
    x = X.to("xla")
    torch_xla.sync()
    executed = _XLAC._computation_stats()[1]
    calls = []

    def f(t, scale, axis):
        calls.append(1)
        return {"s": jnp.where(t["x"] > 0, t["x"], 0).sum(axis) * scale, "x": jnp.sin(t["x"])}

    for _ in range(2):
        got = xb.call_jax(f, ({"x": x + 1}, 2.0), {"axis": 1})
    torch.testing.assert_close(got["s"].cpu(), (X + 1).relu().sum(1) * 2, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got["x"].cpu(), (X + 1).sin(), rtol=1e-4, atol=1e-5)
    assert len(calls) == 1
    assert _XLAC._computation_stats()[1] <= executed + 2


def test_function_of_jax_has_gradients():
    jnp = pytest.importorskip("jax.numpy")
    from torch_xla.experimental.assume_pure import j2t_autograd

    f = j2t_autograd(lambda a, b, power: jnp.tanh(a @ b) ** power)
    a, b = (data(3, 3).to("xla").requires_grad_() for _ in range(2))
    want_a, want_b = (data(3, 3).requires_grad_() for _ in range(2))
    for _ in range(2):
        a.grad = b.grad = None
        f(a, b, power=2).sum().backward()
    (torch.tanh(want_a @ want_b) ** 2).sum().backward()
    torch.testing.assert_close(a.grad.cpu(), want_a.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(b.grad.cpu(), want_b.grad, rtol=1e-4, atol=1e-5)


def test_gather_as_xla_defines_it():
    # Two windows of 1 x 3, the second moved inside; the windows' second dimension comes first.
    indices = torch.tensor([[1, 2], [9, 9]])

    def windows(a, at):
        return a.gather(at, (0,), (0,), (0, 1), 1, slice_sizes=(1, 3))

    want = torch.stack([X[1, 2:5], X[3, 3:6]], dim=1)
    torch.testing.assert_close(on_device(windows, X, indices), want)

    # Index vectors along the first dimension, in the other order, of a batch of two dimensions.
    def elements(a, at):
        return a.gather(at, (), (0, 1), (1, 0), 0)

    at = torch.tensor([[[0, 5], [1, 2]], [[3, 0], [2, 2]]])
    torch.testing.assert_close(on_device(elements, X, at), X[at[1], at[0]])

    # Rows, as an embedding takes them: the indices are numbers.
    def rows(a, at):
        return a.gather(at, (1,), (0,), (0,), 1)

    torch.testing.assert_close(on_device(rows, X, torch.tensor([3, 0, 3])), X[[3, 0, 3]])
    with pytest.raises(ValueError, match="a slice size for each of 2 dimensions"):
        on_device(lambda a, at: a.gather(at, (1,), (0,), (0,), 1, None, (1,)), X, torch.tensor([0]))
    with pytest.raises(ValueError, match="expected index vectors of 2 numbers"):
        on_device(lambda a, at: a.gather(at, (), (0, 1), (0, 1), 1), X, torch.tensor([0]))


COMBINERS = {
    "add": (lambda a, b: a + b, lambda t, u: t + u),
    "add_the_other_way": (lambda a, b: b + a, lambda t, u: t + u),
    "multiply": (lambda a, b: a * b, lambda t, u: t * u),
    "maximum": (lambda a, b: a.max(b), torch.maximum),
    "minimum": (lambda a, b: a.min(b), torch.minimum),
    "replace": (lambda a, b: b, lambda t, u: u),
    "keep": (lambda a, b: a, lambda t, u: t),
    "other": (lambda a, b: a * 2 + b, lambda t, u: t * 2 + u),
}


@pytest.mark.parametrize("name", COMBINERS)
def test_scatter_as_xla_defines_it(name):
    ours, theirs = COMBINERS[name]
    updates = data(3, 2)
    # Windows of 1 x 2; the last is not inside, and left out.
    indices = torch.tensor([[1, 2], [1, 3] if name != "replace" else [2, 0], [3, 5]])
    want = X.clone()
    for (row, column), update in zip(indices[:2].tolist(), updates[:2], strict=True):
        window = want[row, column : column + 2]
        window.copy_(theirs(window, update))

    def windows(a, at, by):
        return a.scatter(at, by, ours, (1,), (0,), (0, 1), 1)

    torch.testing.assert_close(on_device(windows, X, indices, updates), want)


def test_scatter_of_numbers_rows_and_nothing():
    def count(a, at, by):
        return a.scatter(at, by, lambda x, y: x + y, (), (0,), (0,), 1)

    at = torch.tensor([1, 1, 4, -1, 0])
    got = on_device(count, torch.zeros(4, dtype=torch.int32), at, torch.ones(5, dtype=torch.int32))
    assert got.tolist() == [1, 2, 0, 0]
    empty = on_device(count, torch.ones(4), at[:0], torch.ones(0))
    assert empty.tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="scatter: the windows"):
        on_device(lambda a, i, u: a.scatter(i, u, max, (0, 1), (0,), (0,), 1), X, at, data(5, 6))


@pytest.mark.parametrize("size", [1, 2, 5, 8, 13])
def test_sort_by_a_comparator(size):
    keys = torch.randint(0, 4, (3, size), generator=torch.Generator().manual_seed(1)).float()
    places = torch.arange(size).expand(3, size)

    def by_remainder(a, b):
        ordered = xb.Op.sort([a, b], lambda x, y, i, j: x.rem(3.0) > y.rem(3.0), 1)
        return xb.Op.tuple([ordered.get_tuple_element(0), ordered.get_tuple_element(1)])

    op = xor.register("by_remainder", by_remainder)
    values, order = (t.cpu() for t in op(keys.to("xla"), places.to("xla")))
    want = keys.fmod(3).sort(dim=1, descending=True, stable=True).indices
    assert torch.equal(order, want) and torch.equal(values, keys.gather(1, want))
    falling = on_device(lambda a: xb.Op.sort([a], lambda x, y: x > y, 0), keys)
    assert torch.equal(falling, keys.sort(0, descending=True).values)


def test_sort_of_several_by_the_first():
    keys, values = data(6), torch.arange(6)

    def both(a, b):
        return xb.Op.sort([a, b], lambda x, y, i, j: x > y, 0).get_tuple_element(1)

    assert torch.equal(on_device(both, keys, values), keys.argsort(descending=True))


def test_barriers_calls_and_numbers():
    def barred(a):
        both = xb.Op.tuple([a, a * 2]).optimization_barrier()
        return both.get_tuple_element(0) + both.get_tuple_element(1).optimization_barrier()

    torch.testing.assert_close(on_device(barred, X), X * 3)
    got = on_device(lambda a: a + xb.Op.linspace(a.builder(), xb.Type.F32, 0, 1, 6), X)
    torch.testing.assert_close(got, X + torch.linspace(0, 1, 6))
    x = xb.Op(X.to("xla"))
    call = x.custom_call("vendor.f", xb.mkshape(xb.Type.S32, (2,)), x, backend_config="c")
    text = _XLAC._get_xla_tensors_stablehlo([call.tensor])
    del call  # no plugin knows it
    assert "vendor.f" in text and "-> tensor<2xi32>" in text
