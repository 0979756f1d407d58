"""On the CPU, programs call kernels of our own where neither XLA nor PyTorch's kernel is fast: the
same values, in ranges of several threads."""

from __future__ import annotations

import pytest
import torch
from with_settings import calls_in

import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="programs call the host on the CPU alone"
)

_ALL = ("float32", "bfloat16", "float16", "float64")
_TOLERANCES = {"float32": 1e-4, "bfloat16": 4e-2, "float16": 6e-3, "float64": 1e-9}


@pytest.mark.parametrize("dtype", ["uint8", "bool", "bfloat16", "int32", "float64", "complex128"])
@pytest.mark.parametrize(
    ("shape", "permutation"),
    [
        ((300, 200), (1, 0)),
        ((3, 201, 70), (0, 2, 1)),
        ((41, 3, 301), (2, 0, 1)),
        ((41, 301, 3), (1, 2, 0)),
        ((33, 1, 35, 1, 37), (4, 3, 2, 1, 0)),
        ((7, 11, 13, 3, 14), (3, 1, 4, 0, 2)),
        ((40000, 1), (1, 0)),
    ],
)
def test_copies_of_transposed_views(dtype, shape, permutation):
    x = torch.randint(-128, 127, shape).to(getattr(torch, dtype))
    copied = x.to("xla").permute(permutation).contiguous()
    assert ("transpose" in calls_in([copied])) == (1 not in shape[-1:])
    assert torch.equal(copied.cpu(), x.permute(permutation))


def test_copies_of_few_or_of_whole_rows_are_not_calls():
    few, rows = torch.randn(20, 30, device="xla"), torch.randn(50, 40, 30, device="xla")
    assert not calls_in([few.t().contiguous(), rows.transpose(0, 1).contiguous()])


_BROADCASTS = {
    "between": lambda x: x[:, None].expand(-1, 3, -1, -1).contiguous(),
    "outermost": lambda x: x[None].expand(2, -1, -1, -1).contiguous(),
    "innermost": lambda x: x[..., None].expand(-1, -1, -1, 3).contiguous(),
    "of one column": lambda x: x[:, :, :1].expand(-1, -1, 90).contiguous(),
    "of one row": lambda x: x[:, :1].expand(-1, 300, -1).contiguous(),
    "several": lambda x: x[:, None, :, None, :1].expand(-1, 2, -1, 5, 7).contiguous(),
    "repeat": lambda x: x.repeat(2, 3, 1, 4),
    "tile": lambda x: x.tile(3),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "repeat_interleave, innermost": lambda x: x.repeat_interleave(3, 2),
}


@pytest.mark.parametrize("dtype", ["uint8", "bool", "bfloat16", "int32", "float64", "complex128"])
@pytest.mark.parametrize("name", _BROADCASTS)
def test_copies_of_broadcast_views(name, dtype):
    x = torch.randint(-128, 127, (41, 13, 35)).to(getattr(torch, dtype))
    copied = _BROADCASTS[name](x.to("xla"))
    assert calls_in([copied]) == {"broadcast"}
    assert torch.equal(copied.cpu(), _BROADCASTS[name](x))


def test_copies_of_one_number_or_of_few_are_not_calls():
    x = torch.randn(20, 30, device="xla")
    assert not calls_in([x[:1, :1].expand(400, 400).contiguous(), x.repeat(2, 2)])


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("dims", [(0, 1), (2, 0), (-1, -2)])
def test_quarter_turns(k, dims):
    x = torch.randn(41, 43, 29)
    turned = x.to("xla").rot90(k, dims)
    assert turned.stride() == x.rot90(k, dims).stride()
    assert torch.equal(turned.cpu(), x.rot90(k, dims))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [*_ALL, "int8", "int32", "int64", "bool", "complex64"])
def test_scatters_by_a_kernel_of_ours(dim, dtype):
    """Into a part of the tensor, from a part of the source, with places that are named twice."""
    torch.manual_seed(0)
    of = getattr(torch, dtype)
    x, y = (torch.randn(40, 30, 20).mul(4).to(of) for _ in range(2))
    index = torch.randint(x.shape[dim], (33, 22, 17))
    results = []
    for device in ("cpu", "xla"):
        on = [t.to(device) for t in (x, index, y)]
        x1, index1, y1 = on
        results.append(
            [
                x1.scatter(dim, index1, y1),
                x1.scatter(dim, index1, 3),
                x1.scatter_add(dim, index1, y1) if of != torch.bool else x1,
                x1.clone().scatter_(dim, index1.int(), y1),
                x1.flatten().scatter(0, index1.flatten(), y1.flatten()),
            ]
        )
        if device == "xla":
            assert calls_in([results[1][0]]) == {"scatter"}
            assert dtype in ("int8", "bool", "complex64") or calls_in([results[1][2]])
    tolerance = _TOLERANCES.get(dtype, 1e-5)
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=tolerance, atol=8 * tolerance)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [*_ALL, "int8", "int32", "bool", "complex128"])
def test_writes_of_slices_by_a_kernel_of_ours(dim, dtype):
    """Places that are named twice, in ranges of several threads."""
    torch.manual_seed(0)
    of = getattr(torch, dtype)
    shape = [60, 50, 40]
    x = torch.randn(shape).mul(4).to(of)
    index = torch.randint(shape[dim], (33,))
    places = torch.randperm(shape[dim])[:33]
    y = x.narrow(dim, 1, 33).flip(dim)
    theirs = [x.index_copy(dim, places, y), x.index_add(dim, index.int(), y)]
    x, y, index, places = (t.to("xla") for t in (x, y, index, places))
    mine = [x.index_copy(dim, places, y), x.index_add(dim, index.int(), y)]
    assert calls_in([mine[0]]) == {"scatter"}
    assert dtype in ("int8", "bool", "complex128") or calls_in([mine[1]]) == {"scatter_add"}
    tolerance = _TOLERANCES.get(dtype, 1e-5)
    for actual, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=8 * tolerance)


def test_scatters_write_nothing_out_of_range():
    torch.manual_seed(0)
    x, y = torch.randn(90, 70), torch.randn(90, 70)
    index = torch.randint(-9, 99, (90, 70))
    is_inside = (index >= 0) & (index < 90)
    inside = index.where(is_inside, 0)
    added = x.scatter_add(0, inside, y * is_inside)
    mine = x.to("xla").scatter_add(0, index.to("xla"), y.to("xla"))
    torch.testing.assert_close(mine.cpu(), added)
    reached = torch.zeros(90, 70).scatter_add(0, inside, is_inside.float()) > 0
    written = x.to("xla").scatter(0, index.to("xla"), 7.0)
    torch.testing.assert_close(written.cpu(), x.where(~reached, 7.0))
    far = torch.tensor([-1, 90, 2**63 - 1, -(2**63), 3] * 12)
    rows = x.to("xla").index_add(0, far.to("xla"), y[:60].to("xla"))
    torch.testing.assert_close(rows.cpu(), x.index_add(0, torch.full((12,), 3), y[4:60:5]))


@pytest.mark.parametrize("shape", [(300, 200), (3, 5000, 7), (40, 70, 3, 33), (100000, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_columns(shape, dtype):
    torch.manual_seed(0)
    x = torch.rand(shape, dtype=getattr(torch, dtype))
    for dim in range(len(shape) - 1):
        mine = x.to("xla").cumsum(dim)
        assert calls_in([mine]) == {"cumsum"}
        torch.testing.assert_close(mine.cpu(), x.cumsum(dim))


@pytest.mark.parametrize("shape", [(300, 200), (3, 500, 7), (40, 70, 3, 33)])
@pytest.mark.parametrize("dtype", [*_ALL, "int64"])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extrema_of_columns(name, dtype, shape):
    """With numbers that come twice, infinities and NaN."""
    torch.manual_seed(0)
    x = torch.randn(shape).mul(4)
    if dtype != "int64":
        for number in (float("nan"), float("inf"), -float("inf")):
            x[torch.rand(shape) < 0.01] = number
    x = x.to(getattr(torch, dtype))
    for dim in range(len(shape) - 1):
        mine = getattr(x.to("xla"), name)(dim)
        theirs = getattr(x, name)(dim)
        assert calls_in([mine.values]) == {name}
        torch.testing.assert_close(mine.values.cpu(), theirs.values, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(mine.indices.cpu(), theirs.indices)


def test_sums_of_slices_of_halves_are_rounded_once():
    x = torch.full((64, 80), 256.0, dtype=torch.bfloat16)
    index = torch.zeros(60, dtype=torch.int64)
    ones = torch.ones(60, 80, dtype=torch.bfloat16)
    mine = x.to("xla").index_add(0, index.to("xla"), ones.to("xla"))
    assert calls_in([mine]) == {"scatter_add"}
    assert torch.equal(mine[0].cpu(), torch.full((80,), 316.0, dtype=torch.bfloat16))
    assert torch.equal(mine[1:].cpu(), x[1:])
