"""What a call may write: memory that it reads, elements that share memory, tensors given as `out=`
of other dtypes. As PyTorch on the CPU has it, word by word."""

from __future__ import annotations

import warnings

import counts
import pytest
import torch

import torch_xla.debug.metrics as metrics


def outcome(function):
    """The error's type and first line, or the result and the first lines of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function()
        except Exception as error:
            return type(error), str(error).split("\n")[0]
    told = [str(w.message).split(" (Triggered")[0] for w in caught]
    result = [r.cpu().tolist() for r in ([result] if torch.is_tensor(result) else result)]
    return result, [text for text in told if "as many results as" not in text]


def places(x):
    return torch.tensor([0, 1, 2], device=x.device)


READ_AND_WRITTEN = {
    "scatter_": lambda x: x.scatter_(0, places(x), x),
    "scatter_add_": lambda x: x.scatter_add_(0, places(x), x),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, places(x), x, "sum"),
    "index_add_": lambda x: x.index_add_(0, places(x), x),
    "index_copy_": lambda x: x.index_copy_(0, places(x), x),
    "index_reduce_": lambda x: x.index_reduce_(0, places(x), x, "amax"),
    "put_": lambda x: x.put_(places(x), x),
    "take out=": lambda x: torch.take(x, places(x), out=x),
    "gather out=": lambda x: torch.gather(x, 0, places(x), out=x),
    "index_select out=": lambda x: torch.index_select(x, 0, places(x), out=x),
    "masked_select out=": lambda x: torch.masked_select(x, x > -1, out=x[:2]),
    "kthvalue out=": lambda x: x.kthvalue(1, out=(x[0], places(x)[0])),
    "cat out=": lambda x: torch.cat([x[:1], x[1:]], out=x),
    "topk out=": lambda x: torch.topk(x, 2, out=(x[:2], places(x)[:2])),
    "max of numbers out=": lambda x: torch.max(x[0], 0, out=(x[0], places(x)[0])),
    "norm of rows out=": lambda x: torch.linalg.vector_norm(x[1:, None], 2, 1, out=x[:2]),
    "norm out=": lambda x: torch.linalg.vector_norm(x, out=x[1]),
    "fill_ with its number": lambda x: x.fill_(x[2]),
    "masked_fill_ with its number": lambda x: x.masked_fill_(x > 0, x[0]),
}


@pytest.mark.parametrize("name", READ_AND_WRITTEN)
def test_what_is_read_may_be_written_where_the_cpu_allows_it(name, device):
    call = READ_AND_WRITTEN[name]
    assert outcome(lambda: call(torch.arange(3.0, device=device))) == outcome(
        lambda: call(torch.arange(3.0))
    )


# How what is written and what is read lie in one memory of integers, or of booleans.
SHARED = {
    "whole": lambda x: (x[:3], x[:3]),
    "part": lambda x: (x[:3], x[1:4]),
    "beside": lambda x: (x[:3], x[3:6]),
    "one": lambda x: (x[:3], x[1:2]),
    "number": lambda x: (x[:3], x[1]),
}
INDICES = {
    "index_fill_": lambda x, i: x.index_fill_(0, i, 7),
    "index_fill_ by a tensor": lambda x, i: x.index_fill_(0, i, x.new_ones(())),
    "index_fill_ value": lambda x, i: x.index_fill_(0, places(x), i),
    "index_put_": lambda x, i: x.index_put_((i,), i + 4),
    "index_put_ accumulating": lambda x, i: x.index_put_((i,), i + 4, accumulate=True),
    "index_put_ values": lambda x, i: x.index_put_((places(x)[: i.numel()],), i),
    "assignment": lambda x, i: (x.__setitem__(i, i + 4), x)[1],
    "index out=": lambda x, i: torch.ops.aten.index.Tensor_out(x + 4, [i], out=x),
    "gather out=": lambda x, i: torch.gather(x + 4, 0, i, out=x),
    "gather from, out=": lambda x, i: torch.gather(i, 0, places(x) * 0, out=x),
    "put out=": lambda x, i: torch.ops.aten.put.out(x + 4, i, i + 1, out=x),
    "index_fill out=": lambda x, i: torch.ops.aten.index_fill.int_Scalar_out(x, 0, i, 7, out=x),
    "stack out=": lambda x, i: torch.stack([i], out=x[None]),
    "cumsum out=": lambda x, i: torch.cumsum(i, 0, out=x),
    "sort out=": lambda x, i: torch.sort(i, out=(x, x + 4)),
    "nonzero out=": lambda x, i: torch.nonzero(i, out=x),
    "addr out=": lambda x, i: torch.addr(i + 4, x[:1] + 4, i.view(-1), out=x[None]),
}
MASKS = {
    "masked_fill_": lambda x, m: x.masked_fill_(m, False),
    "masked_fill_ value": lambda x, m: x.masked_fill_(~x, m),
    "masked_scatter_": lambda x, m: x.masked_scatter_(m, ~x),
    "number by a mask": lambda x, m: x.index_put_((m,), ~x[0]),
    "number accumulated by a mask": lambda x, m: x.index_put_((m,), ~x[0], accumulate=True),
    "two numbers by a mask": lambda x, m: x.index_put_((m,), (~x)[1:]),
    "masked_fill out=": lambda x, m: torch.ops.aten.masked_fill.Scalar_out(~x, m, True, out=x),
}


def shared_outcome(call, share, memory, device):
    """What the call gives when nothing that it reads is what it has written."""
    found = outcome(lambda: call(*SHARED[share](memory.clone().to(device))))
    is_shared = share != "beside" and isinstance(found[0], list)
    return "a result" if is_shared else found


@pytest.mark.parametrize("share", SHARED)
@pytest.mark.parametrize("name", (*INDICES, *MASKS))
def test_index_or_mask_in_the_memory_that_is_written_is_refused_as_on_the_cpu(name, share, device):
    call = INDICES.get(name) or MASKS[name]
    memory = torch.tensor([0, 1, 2, 2, 0, 1])
    if name in MASKS:
        memory = memory % 2 == 0
    want = shared_outcome(call, share, memory, "cpu")
    assert shared_outcome(call, share, memory, device) == want


# How an out tensor of another size and what is read, of three elements, lie in one memory.
RESIZED = {
    "shrinks out of what is read": lambda x: (x[:4], x[3:6]),
    "grows into what is read": lambda x: (x[:1], x[1:4]),
    "shrinks beside what is read": lambda x: (x[6:], x[:3]),
    "repeats": lambda x: (x[6:7].expand(4), x[:3]),
}
WRITTEN = {
    "add": lambda o, r: torch.add(r, 1, out=o),
    "add of rows": lambda o, r: torch.add(r.view(3, 1), r.new_ones(1, 2), out=o),
    "ceil of integers": lambda o, r: torch.ceil(r, out=o),
    "nan_to_num of integers": lambda o, r: torch.nan_to_num(r, out=o),
    "conj_physical of integers": lambda o, r: torch.conj_physical(r, out=o),
    "where": lambda o, r: torch.where(r > 0, r, r + 1, out=o),
    "gather": lambda o, r: torch.gather(r, 0, places(r), out=o),
    "gather, index": lambda o, r: torch.gather(r + 1, 0, r, out=o),
    "index_select": lambda o, r: torch.index_select(r, 0, places(r), out=o),
    "index_select, index": lambda o, r: torch.index_select(r + 1, 0, r, out=o),
    "take": lambda o, r: torch.take(r, places(r), out=o),
    "scatter": lambda o, r: torch.scatter(r, 0, places(r), 1, out=o),
    "scatter, index": lambda o, r: torch.scatter(r + 1, 0, r, 1, out=o),
    "scatter, source": lambda o, r: torch.scatter(r + 1, 0, places(r), r, out=o),
    "index_add, source": lambda o, r: torch.index_add(r + 1, 0, places(r), r, out=o),
    "masked_select": lambda o, r: torch.masked_select(r, r > -1, out=o),
    "nonzero": lambda o, r: torch.nonzero(r, out=o),
    "cat": lambda o, r: torch.cat([r[:1], r[1:]], out=o),
    "stack": lambda o, r: torch.stack([r], out=o),
    "cumsum": lambda o, r: torch.cumsum(r, 0, out=o),
    "sort": lambda o, r: torch.sort(r, out=(o, r + 1)),
    "sort, indices": lambda o, r: torch.sort(r, out=(r + 1, o)),
    "kthvalue": lambda o, r: torch.kthvalue(r.view(3, 1), 1, 1, True, out=(o, r + 1)),
    "kthvalue, indices": lambda o, r: torch.kthvalue(r.view(3, 1), 1, 1, True, out=(r + 1, o)),
    "topk, indices": lambda o, r: torch.topk(r, 3, out=(r + 1, o)),
    "max": lambda o, r: torch.max(r.view(3, 1), 1, out=(o, r + 1)),
    "max, indices": lambda o, r: torch.max(r.view(3, 1), 1, out=(r + 1, o)),
    "aminmax": lambda o, r: torch.aminmax(r.view(3, 1), dim=1, out=(o, r + 1)),
    "addmv": lambda o, r: torch.addmv(r, r.new_ones(3, 2), r.new_ones(2), out=o),
    "addmv of a number": lambda o, r: torch.addmv(r[:1], r.new_ones(3, 2), r.new_ones(2), out=o),
    "addmv, vector": lambda o, r: torch.addmv(r + 1, r.new_ones(3, 3), r, out=o),
    "addr": lambda o, r: torch.addr(r, r.new_ones(1), r.new_ones(3), out=o),
    "addr, vector": lambda o, r: torch.addr(r + 1, r.new_ones(1), r, out=o),
}


# The CPU's kthvalue looks at its input alone.
RESIZING = [
    (name, share)
    for name in WRITTEN
    for share in RESIZED
    if (name, share) != ("kthvalue", "repeats")
]


@pytest.mark.parametrize(("name", "share"), RESIZING)
def test_out_tensor_of_another_size_is_looked_at_when_the_cpu_does(name, share, device):
    def call(device):
        memory = torch.tensor([0, 1, 2, 2, 0, 1, 2, 2, 2, 2, 2]).to(device)
        found = outcome(lambda: WRITTEN[name](*RESIZED[share](memory)))
        is_shared = "what is read" in share and "beside" not in share
        return "a result" if is_shared and isinstance(found[0], list) else found

    assert call(device) == call("cpu")


# Each writes its result into an operand that is smaller.
OPERANDS = {
    "ldexp": lambda x, row: torch.ldexp(x, row, out=row),
    "ldexp, mantissa": lambda x, row: torch.ldexp(row, x, out=row),
    "rsub": lambda x, row: torch.ops.aten.rsub.Tensor_out(x, row, out=row),
    "masked_fill": lambda x, row: torch.ops.aten.masked_fill.Scalar_out(row, x > 1, 7, out=row),
    "add": lambda x, row: torch.add(x, row, out=row),
    "where": lambda x, row: torch.where(x > 1, x, row, out=row),
    "lerp": lambda x, row: torch.lerp(x, row, 0.5, out=row),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operand_that_is_too_small_for_the_result_is_resized_where_the_cpu_does(name, device):
    def call(device):
        x, row = torch.arange(6.0).view(2, 3).to(device), torch.arange(3.0).to(device)
        return outcome(lambda: OPERANDS[name](x, row)), row.shape

    assert call(device) == call("cpu")


def test_one_mask_without_dimensions_chooses_all_or_nothing(device):
    x, value = torch.arange(3.0, device=device), torch.tensor(5.0, device=device)
    assert x.clone().index_put_((x[1] > 0,), value).tolist() == [5, 5, 5]
    assert x.clone().index_put_((x[0] > 0,), value).tolist() == [0, 1, 2]


def expanded(device, *sizes, dtype=torch.float32):
    """Twice as large in the dimensions of size 1."""
    return torch.ones(sizes, dtype=dtype).to(device).expand([2 if n == 1 else n for n in sizes])


def index(device):
    return torch.tensor([1], device=device)


REPEATED = {
    "add_": lambda d: expanded(d, 1, 3).add_(1),
    "floor_divide_": lambda d: expanded(d, 1, 3).floor_divide_(2),
    "logit_": lambda d: expanded(d, 1, 3).logit_(),
    "cauchy_": lambda d: expanded(d, 1, 3).cauchy_(),
    "geometric_": lambda d: expanded(d, 1, 3).geometric_(0.5),
    "zero_": lambda d: expanded(d, 1, 3).zero_(),
    "_foreach_zero_": lambda d: torch._foreach_zero_([expanded(d, 1, 3)]),
    "threshold_": lambda d: torch.threshold_(expanded(d, 1, 3), 2.0, 5.0),
    "index_fill_": lambda d: expanded(d, 1, 3).index_fill_(0, index(d), 7.0),
    "masked_fill_": lambda d: expanded(d, 1, 3).masked_fill_(expanded(d, 1, 3) > 0, 7.0),
    "index_put_": lambda d: expanded(d, 1, 3).index_put_((index(d),), torch.tensor(2.0, device=d)),
    "index_put_ by a mask": lambda d: expanded(d, 1, 3).index_put_(
        (expanded(d, 1, 3) > 0,), torch.tensor(2.0, device=d)
    ),
    "conj_physical_": lambda d: expanded(d, 1, 3).conj_physical_(),
    "conj_physical_ of complex": lambda d: expanded(
        d, 1, 3, dtype=torch.complex64
    ).conj_physical_(),
    "tril_ of matrices": lambda d: expanded(d, 3, 1).tril_(),
    "tril_ of batches": lambda d: expanded(d, 1, 2, 3, 3).tril_(),
    "tril_ of batches within": lambda d: expanded(d, 2, 1, 3, 3).tril_(),
    "triu_ of rows": lambda d: expanded(d, 2, 2, 1, 3).triu_(),
}


@pytest.mark.parametrize("name", REPEATED)
def test_elements_that_share_memory_are_written_where_the_cpu_writes_them(name, device):
    assert outcome(lambda: REPEATED[name](device)) == outcome(lambda: REPEATED[name]("cpu"))


def ones(device, *sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device=device)


OUTS = {
    "bernoulli of integers": lambda d, o: torch.bernoulli(ones(d, 3), out=o(torch.int64)),
    "bernoulli of complex": lambda d, o: torch.bernoulli(ones(d, 3), out=o(torch.complex64)),
    "where": lambda d, o: torch.where(ones(d, 3) > 0, ones(d, 3), ones(d, 3), out=o(torch.float64)),
    "stack": lambda d, o: torch.stack([ones(d, 3)], out=o(torch.int64)),
    "take": lambda d, o: torch.take(ones(d, 3), index(d), out=o(torch.float64)),
    "masked_select": lambda d, o: torch.masked_select(
        ones(d, 3), ones(d, 3) > 0, out=o(torch.float64)
    ),
    "masked_select of its dtype": lambda d, o: torch.masked_select(
        ones(d, 5), ones(d, 5) > 0, out=o(torch.float32)
    ),
    "nonzero": lambda d, o: torch.nonzero(ones(d, 3), out=o(torch.float64)),
    "index": lambda d, o: torch.ops.aten.index.Tensor_out(
        ones(d, 3), [index(d)], out=o(torch.float32)
    ),
}


@pytest.mark.parametrize("name", OUTS)
def test_out_tensor_of_another_dtype_is_refused_or_cast_as_on_the_cpu(name, device):
    want = outcome(lambda: OUTS[name]("cpu", lambda dtype: ones("cpu", 3, dtype=dtype)))
    assert outcome(lambda: OUTS[name](device, lambda dtype: ones(device, 3, dtype=dtype))) == want


BOUNDS = {
    "uniform_": lambda x: (x.uniform_(0, 1), x.uniform_(3, -1)),
    "normal_": lambda x: (x.normal_(0, 1), x.normal_(0, -1)),
    "normal_ of integers": lambda x: x.long().normal_(),
    "random_": lambda x: (x.random_(0, 3), x.random_(3, 3)),
    "random_ to": lambda x: (x.random_(3), x.random_(0)),
    "random_ of bytes": lambda x: x.byte().random_(0, 300),
    "random_ of complex": lambda x: x.cfloat().random_(),
    "randint": lambda x: torch.randint(5, 2, (3,), device=x.device),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_of_random_numbers_are_looked_at_in_each_call(name, device):
    want = outcome(lambda: BOUNDS[name](ones("cpu", 3)))
    assert isinstance(want[0], type)
    assert outcome(lambda: BOUNDS[name](ones(device, 3))) == want


def test_parts_that_are_split_unsafely_share_memory(device):
    x = torch.zeros(4, 2, device=device)
    x.unsafe_split(2)[0].add_(1)
    x.unsafe_chunk(2)[1].add_(2)
    x.unsafe_split_with_sizes([1, 3])[0].add_(5)
    assert x.cpu().tolist() == [[6, 6], [1, 1], [2, 2], [2, 2]]
    assert not x.unsafe_split(2)[0]._is_view()


def test_indexed_assignment_out_of_place_gives_no_view(device):
    x = torch.zeros(2, 3, device=device, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, True, False]], device=device)
    result = x.index_put((mask,), torch.ones(3, device=device))
    assert not result._is_view()
    assert result.detach().cpu().tolist() == [[1, 0, 1], [0, 1, 0]]


MADE = {
    "eye": lambda o: torch.eye(3, out=o(3, 3)),
    "eye of columns": lambda o: torch.eye(2, 3, out=o(0)),
    "linspace": lambda o: torch.linspace(0, 2, 6, out=o(2, 3)),
    "linspace of another size": lambda o: torch.linspace(0, 2, 6, out=o(5)),
    "linspace of integers": lambda o: torch.linspace(0, 7, 4, out=o(4, dtype=torch.int32)),
    "logspace": lambda o: torch.logspace(0, 2, 3, out=o(3, dtype=torch.float64)),
    "logspace of one": lambda o: torch.logspace(4.3, 0, 1, out=o(1, dtype=torch.bfloat16)),
    "logspace of one integer": lambda o: torch.logspace(0.5, 0, 1, out=o(1, dtype=torch.int64)),
    "abs of complex": lambda o: torch.abs(
        o(3, dtype=torch.complex64) + 2j, out=o(3, dtype=torch.float64)
    ),
    "abs of complex into complex": lambda o: torch.abs(
        o(3, dtype=torch.complex64) + 2j, out=o(3, dtype=torch.complex64)
    ),
    "nan_to_num_ of integers that repeat": lambda o: (
        o(1, dtype=torch.int64).expand(3).nan_to_num_()
    ),
    "arange": lambda o: torch.arange(2, 8, 2, out=o(3, dtype=torch.int64)),
    "arange of another size": lambda o: torch.arange(2, 8, 2, out=o(2, 4)),
    "arange of strides": lambda o: torch.arange(6, out=o(3, 2).t()),
    "conj_physical": lambda o: torch.conj_physical(o(3, dtype=torch.complex64) + 2j, out=o(3)),
    "conj_physical of complex": lambda o: torch.conj_physical(
        o(3, dtype=torch.complex64) + 2j, out=o(3, dtype=torch.complex64)
    ),
    "conj_physical into complex": lambda o: torch.conj_physical(
        o(3), out=o(3, dtype=torch.complex64)
    ),
    "conj_physical of reals": lambda o: torch.conj_physical(o(3) + 2, out=o(3)),
    "ifft": lambda o: torch.fft.ifft(o(4) + 1, out=o(4, dtype=torch.complex64)),
}


@pytest.mark.parametrize("name", MADE)
def test_out_overload_without_a_lowered_twin_stays_on_the_device(name, device):
    def call(device):
        def zeros(*sizes, **options):
            return torch.zeros(sizes, device=device, **options)

        return MADE[name](zeros)

    want = outcome(lambda: call("cpu"))
    metrics.clear_counters()
    assert outcome(lambda: call(device)) == want
    assert not counts.left_the_device()
