"""In-place calls, `out=`, `set_data`, `detach` and copies share, or do not share, as on the CPU."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from both_devices import check

import torch_xla


def numbers(device, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 5 - 1).to(dtype).reshape(shape).to(device)


WRITES = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "sub_": lambda x, y: x.sub_(3),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(4),
    "neg_": lambda x, y: x.neg_(),
    "zero_": lambda x, y: x.zero_(),
    "fill_ with a tensor": lambda x, y: x.fill_(y[0, 0]),
    "copy_ of another dtype": lambda x, y: x.copy_(y.double()),
    "copy_ that broadcasts": lambda x, y: x.copy_(y[0]),
    "clamp_": lambda x, y: x.clamp_(0, 2),
    "relu_": lambda x, y: torch.relu_(x),
    "pow_": lambda x, y: x.pow_(2),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 9),
    "index_add_": lambda x, y: x.index_add_(1, torch.tensor([0, 0], device=x.device), y[:, :2]),
    "index_copy_": lambda x, y: x.index_copy_(0, torch.tensor([1], device=x.device), y[:1]),
    "index_fill_": lambda x, y: x.index_fill_(0, torch.tensor([1], device=x.device), 7),
    "scatter_": lambda x, y: x.scatter_(0, torch.zeros(1, 3, dtype=torch.long, device=x.device), 4),
    "setitem": lambda x, y: x.__setitem__((slice(None), 1), 4),
    "setitem by tensor": lambda x, y: x.__setitem__(torch.tensor([1, 0], device=x.device), y),
    "setitem by CPU tensor": lambda x, y: x.__setitem__(torch.tensor([1]), y[:1]),
    "setitem by mask": lambda x, y: x.__setitem__(y > 1, -3.0),
    "setitem by mask, values": lambda x, y: x.__setitem__(y[:, 0] >= -1, y),
    "index_put_ accumulating": lambda x, y: x.index_put_(
        (torch.tensor([0, 0], device=x.device),), y, accumulate=True
    ),
    "tril_": lambda x, y: x.tril_(),
    "cumsum_": lambda x, y: x.cumsum_(1),
    "addmm_": lambda x, y: x.addmm_(x @ x.t(), y),
    "swap of columns": lambda x, y: x.copy_(x.flip(1)),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_to_base_and_through_view(name):
    def program(device):
        x, y = numbers(device, 2, 3), numbers(device, 2, 3) + 1
        base = numbers(device, 4, 4)
        view = base.t()[1:3, 1:]
        WRITES[name](x, y)
        WRITES[name](view, y)
        return x, base, view

    check(program)


def test_result_of_write_is_the_tensor_itself():
    x = torch.zeros(3, device="xla")
    assert x.add_(1) is x
    before = x
    x += 1
    assert x is before


def test_write_keeps_dtype_or_raises():
    def program(device):
        half = numbers(device, 3, dtype=torch.float16)
        half.add_(numbers(device, 3, dtype=torch.float64))
        whole = numbers(device, 3, dtype=torch.int32)
        whole.add_(numbers(device, 3, dtype=torch.int64))
        return half, whole

    check(program)
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError, match="result type Float can't be cast"):
            numbers(device, 3, dtype=torch.int32).add_(0.5)


def test_write_that_would_broadcast_self_raises():
    for device in ("cpu", "xla"):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            numbers(device, 3).add_(numbers(device, 2, 3))


def test_out_argument():
    def program(device):
        x, y = numbers(device, 2, 3), numbers(device, 2, 3) + 1
        out = torch.empty(0, device=device)
        torch.add(x, y, out=out)
        base = torch.zeros(4, 3, device=device)
        torch.mul(x, y, out=base[1:3])
        double = torch.zeros(2, 3, dtype=torch.float64, device=device)
        torch.sub(x, y, out=double)
        values, indices = torch.empty(0, device=device), torch.empty(0, device=device).long()
        torch.max(x, 1, out=(values, indices))
        torch.exp(x, out=x)
        return out, base, double, values, indices, x

    check(program)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(
            torch.ones(2, device="xla"), 1, out=torch.zeros(2, dtype=torch.int64, device="xla")
        )


def test_out_argument_of_another_shape_is_resized_with_a_warning():
    out = torch.zeros(5, device="xla")
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(torch.ones(2, 3, device="xla"), 1, out=out)
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_resize_shares_memory_while_it_fits():
    def program(device):
        x = numbers(device, 6)
        y = x[1:4]
        y.resize_(2)
        y.fill_(9)
        x[0:1].resize_(2, 3).add_(1)
        return x, y

    check(program)


def test_set_data():
    def program(device):
        x, y = numbers(device, 3), numbers(device, 2, 2)
        alias = x.view(3)
        x.data = y
        x.data.add_(1)
        x.detach().mul_(2)
        return x, y, alias

    check(program)


def test_detach_shares_memory_and_stops_gradients():
    x = torch.ones(3, device="xla", requires_grad=True)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad
    d.add_(1)
    assert y.tolist() == [3, 3, 3]
    with torch.no_grad():
        assert x.detach().add_(1).tolist() == [2, 2, 2]
    assert x.tolist() == [2, 2, 2]


def test_copies_are_deep():
    x = torch.zeros(3, device="xla")
    shallow, deep, clone = copy.copy(x), copy.deepcopy(x), x.clone()
    x.add_(1)
    for other in (shallow, deep, clone):
        assert other.device == x.device
        assert other.tolist() == [0, 0, 0]
    parameter = torch.nn.Parameter(torch.zeros(2, device="xla"))
    assert isinstance(copy.copy(parameter), torch.nn.Parameter)


def test_deepcopy_of_module_keeps_ties():
    a = torch.nn.Linear(3, 3).to("xla")
    a.also = a.weight
    b = copy.deepcopy(a)
    assert b.also is b.weight
    with torch.no_grad():
        b.weight.zero_()
    assert a.weight.abs().sum().item() > 0


def test_set_source_tensor():
    def program(device):
        x, y = numbers(device, 3), numbers(device, 4)
        x.set_(y[1:])
        x.add_(1)
        return x, y

    check(program)


def test_foreach_writes():
    def program(device):
        xs = [numbers(device, 2, 3), numbers(device, 4)]
        ys = [numbers(device, 2, 3) + 1, numbers(device, 4) - 1]
        torch._foreach_add_(xs, ys, alpha=3)
        torch._foreach_mul_(xs, 0.5)
        torch._foreach_lerp_(xs, ys, 0.1)
        torch._foreach_zero_(ys[:1])
        torch._foreach_copy_(ys[1:], xs[1:])
        return *xs, *ys

    check(program)


def test_foreach_writes_of_one_memory_follow_each_other():
    def program(device):
        x = numbers(device, 4)
        y = numbers(device, 2)
        torch._foreach_add_([x, y, x], [numbers(device, 4), y + 1, x * 2])
        torch._foreach_mul_([x[:3], x[1:]], [2.0, 3.0])
        torch._foreach_addcdiv_([x, x], [x, x], [x + 2, x + 3], [0.5, 0.25])
        torch._foreach_zero_([y, y])
        return x, y

    check(program)


def test_write_survives_the_view_it_went_through():
    x = torch.zeros(4, device="xla")
    x[1:3].add_(1)
    v = x[2:]
    del x
    torch_xla.sync()
    assert v.tolist() == [1, 0]


def test_base_freed_before_barrier_leaves_view():
    v = (torch.arange(6.0, device="xla") * 2)[2:4]
    torch_xla.sync()
    v.add_(1)
    assert v.tolist() == [5, 7]


def test_upload_after_recorded_reads_does_not_change_them():
    x = torch.ones(3, device="xla")
    y = x * 2
    x.copy_(torch.full((3,), 5.0))
    assert y.tolist() == [2, 2, 2]
    assert x.tolist() == [5, 5, 5]


def test_batch_norm_updates_its_running_statistics():
    def program(device):
        norm = torch.nn.BatchNorm1d(3).to(device)
        norm(numbers(device, 4, 3))
        return norm.running_mean, norm.running_var, norm.num_batches_tracked

    want, got = program("cpu"), program("xla")
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b.cpu(), a)


def parts_updated_in_place(gates):
    """As torch's LSTM cells do it."""
    a, b, c = gates.unsafe_chunk(3, 1)
    a.sigmoid_()
    b.tanh_()
    c.mul_(a + b)
    return a * b + c


def test_reads_of_written_parts_take_what_was_written():
    x = numbers("xla", 4, 6)
    torch_xla.sync()
    result = parts_updated_in_place(x * 2)
    text = torch_xla._XLAC._graph_of([result], "stablehlo")
    # None of them reads another's write.
    written = set(re.findall(r'(%\d+) = "stablehlo.optimization_barrier"', text))
    read = set(re.findall(r'"stablehlo.slice"\((%\d+)\)', text))
    assert written and read and not written & read
    check(lambda device: parts_updated_in_place(numbers(device, 4, 6) * 2))


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("is_input", [False, True])
def test_reads_beside_before_and_across_writes(start, is_input):
    def program(device):
        x = numbers(device, 6, 3)
        if is_input and device == "xla":
            torch_xla.sync()
        x[1:3] *= 2
        first = x[start : start + 2] + 1
        x[2:4] = x[start : start + 2] * 3
        x[:, 1:] -= x[:, :2] * 2
        return first, x[start : start + 2] + 1, x[1:3].clone(), x[2:4].clone(), x

    check(program)
