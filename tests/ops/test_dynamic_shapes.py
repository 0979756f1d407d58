"""Results whose sizes only the data tell: right, one barrier each, counted. And the forms that need
no size: masks that choose between values, and derivatives of products."""

from __future__ import annotations

import warnings

import counts
import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as metrics

_READS = ("DataDependentShape", "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select")


def _reads() -> int:
    return sum(metrics.counter_value(name) or 0 for name in _READS)


_MASK = torch.tensor([[True, False, True], [False, False, True]])
_X = torch.tensor([[1.0, 2.0, 2.0], [4.0, 0.0, 4.0]])
_N = torch.tensor([2, 0, 3, 1, 2])

_SIZED_BY_DATA = {
    "nonzero": lambda x, m, n: torch.nonzero(m),
    "nonzero as tuple": lambda x, m, n: torch.nonzero(m, as_tuple=True),
    "argwhere": lambda x, m, n: torch.argwhere(m),
    "where of a condition": lambda x, m, n: torch.where(m),
    "masked_select": lambda x, m, n: torch.masked_select(x, m),
    "mask as index": lambda x, m, n: x[m],
    "row mask as index": lambda x, m, n: x[m.any(1)],
    "column mask as index": lambda x, m, n: x[:, m[0]],
    "two masks": lambda x, m, n: x[m.any(1), m[0]],
    "unique": lambda x, m, n: torch.unique(x),
    "unique with all": lambda x, m, n: torch.unique(x, return_inverse=True, return_counts=True),
    "unique of rows": lambda x, m, n: torch.unique(x, dim=0),
    "unique_consecutive": lambda x, m, n: torch.unique_consecutive(x),
    "repeat_interleave": lambda x, m, n: torch.repeat_interleave(n, n),
    "bincount": lambda x, m, n: torch.bincount(n),
    # There are residuals if the matrix has full rank.
    "gelsd": lambda x, m, n: torch.linalg.lstsq(x.mT, x.mT.cos(), driver="gelsd"),
    "gelss": lambda x, m, n: torch.linalg.lstsq(x.mT * 0, x.mT, driver="gelss"),
}


@pytest.mark.parametrize("name", _SIZED_BY_DATA)
def test_result_sized_by_data_is_right_with_one_read(name):
    call = _SIZED_BY_DATA[name]
    x, mask, n = _X.to("xla"), _MASK.to("xla"), _N.to("xla")
    torch_xla.sync()
    metrics.clear_counters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = call(x + 0, mask, n)
    assert metrics.counter_value("DataDependentShape") == 1
    assert not counts.left_the_device()
    expected = call(_X, _MASK, _N)
    pairs = (
        zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    )
    for a, e in pairs:
        torch.testing.assert_close(a.cpu(), e)


def test_first_of_each_operator_is_reported_at_the_line():
    x = torch.arange(3.0, device="xla")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.unique_consecutive(x, dim=0)
    told = [w for w in caught if "unique_consecutive" in str(w.message)]
    assert len(told) <= 1
    assert all(w.filename == __file__ for w in told)


def test_size_by_data_leaves_the_rest_recorded():
    x = torch.arange(4.0, device="xla")
    torch_xla.sync()
    other = x * 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x[x > 1]
    metrics.clear_counters()
    assert "stablehlo.multiply" in torch_xla._XLAC._pending_program(0)
    assert other.tolist() == [0.0, 3.0, 6.0, 9.0]


def _assign(target: torch.Tensor, index: object, value: object) -> torch.Tensor:
    out = target.clone()
    out[index] = value
    return out


_STATIC = {
    "mask = number": lambda x, m, v: _assign(x, m, 5.0),
    "mask = scalar": lambda x, m, v: _assign(x, m, v.sum()),
    "mask = values": lambda x, m, v: _assign(x, m, v),
    "row mask = row": lambda x, m, v: _assign(x, m.any(1) & m.all(1).logical_not(), v),
    "row mask = rows": lambda x, m, v: _assign(x, m[:, 2], torch.stack([v, v + 1])),
    "column mask = columns": lambda x, m, v: _assign(x, (slice(None), m[0]), v[:2]),
    "ellipsis and mask": lambda x, m, v: _assign(x, (..., m[0]), v[:2]),
    "index_put": lambda x, m, v: x.index_put((m,), v),
    "index_put accumulating": lambda x, m, v: x.index_put((m,), v, accumulate=True),
    "index_put_": lambda x, m, v: x.clone().index_put_((m,), v),
    "index_put_ accumulating": lambda x, m, v: x.clone().index_put_((m,), v, accumulate=True),
    "masked_fill": lambda x, m, v: x.masked_fill(m, v.sum()),
    "masked_fill_": lambda x, m, v: x.clone().masked_fill_(m, v.sum()),
    "masked_fill of number": lambda x, m, v: x.masked_fill(m, 2.0),
    "masked_scatter": lambda x, m, v: x.masked_scatter(m, v),
    "where": lambda x, m, v: torch.where(m, x, v),
    "prod": lambda x, m, v: x.prod() * v.prod(),
    "prod along": lambda x, m, v: x.prod(1) + v.prod(0, keepdim=True),
    "prod of nothing": lambda x, m, v: x[:0].prod() * v + v[:0].prod(),
    "prod along nothing": lambda x, m, v: x[:0].prod(0) * v + x[:0].prod(1, keepdim=True).sum(),
    "index_fill": lambda x, m, v: x.index_fill(1, torch.tensor([2, 0, 2]).to(x.device), v.sum()),
    "index_fill_": lambda x, m, v: x.clone().index_fill_(
        0, torch.tensor([1, 1]).to(x.device), v.prod()
    ),
    "index_fill of a number": lambda x, m, v: v[0].index_fill(
        0, torch.tensor(0).to(x.device), x.sum()
    ),
    "cumprod": lambda x, m, v: x.cumprod(1) + v.cumprod(0),
}


@pytest.mark.parametrize("name", _STATIC)
def test_static_form_reads_nothing_forward_and_backward(name):
    call = _STATIC[name]
    results = []
    for device in ("cpu", "xla"):
        x = _X.detach().clone().to(device).requires_grad_()
        v = torch.tensor([7.0, 0.0, 9.0]).to(device).requires_grad_()
        mask = _MASK.to(device)
        metrics.clear_counters()
        y = call(x, mask, v)
        weights = torch.arange(1.0, y.numel() + 1, device=device).reshape(y.shape)
        first = torch.autograd.grad(
            (y * weights).sum(), (x, v), create_graph=True, allow_unused=True
        )
        loss = sum((g * g).sum() for g in first if g is not None)
        second = []
        if loss.requires_grad:
            second = list(torch.autograd.grad(loss, (x, v), allow_unused=True))
        assert _reads() == 0 and not counts.left_the_device()
        results.append([y, *first, *second])
    for expected, actual in zip(*results, strict=True):
        if expected is None or actual is None:
            # A gradient that is zero may be left out by one of the two formulas.
            given = actual if expected is None else expected
            assert given is None or not given.cpu().any()
        else:
            torch.testing.assert_close(actual.cpu(), expected)


def test_repeats_of_known_total_read_nothing():
    n = _N.to("xla")
    metrics.clear_counters()
    actual = torch.repeat_interleave(torch.arange(5, device="xla"), n, output_size=8)
    assert _reads() == 0
    assert actual.tolist() == torch.repeat_interleave(torch.arange(5), _N).tolist()


def test_mask_of_other_sizes_is_refused():
    x = torch.zeros(2, 3, device="xla")
    with pytest.raises(IndexError, match="The shape of the mask"):
        x[torch.ones(3, 3, dtype=torch.bool, device="xla")] = 1.0
    with pytest.raises(IndexError, match="shape mismatch: value tensor of shape"):
        x[torch.ones(2, dtype=torch.bool, device="xla")] = torch.ones(2, 5, device="xla")
