"""A fixed part of the sweep over operators, dtypes, 0-d and empty tensors, `out=` and in place,
with its exceptions; `python tools/conformance --sweep` has all of it."""

from __future__ import annotations

import pytest
import sweep
import torch
from pinned_torch import IS_NEWER

_ENTRIES = ("eq", "erfinv", "maximum", "sgn", "where")
_DTYPES = ("bool", "uint8", "int32", "float32", "complex64")


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("name", _ENTRIES)
@pytest.mark.parametrize("dtype", _DTYPES)
def test_calls_agree_with_cpu(name, dtype):
    is_excused = sweep.excused()
    assert not [p for p in sweep.unit(name, dtype) if not is_excused(p)]


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("name", ["_foreach_clamp_min", "_foreach_norm", "sum"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_calls_over_lists_and_with_another_dtype_agree_with_cpu(name, dtype):
    is_excused = sweep.excused()
    assert not [p for p in sweep.unit(name, dtype) if not is_excused(p)]


def test_calls_over_lists_and_with_another_dtype_are_made():
    calls = sweep._calls
    made = {case for case, *_ in calls(sweep._entry("_foreach_add"), "float32", sweep.CASES)}
    assert made >= {f"ordinary {call} {i}" for call in sweep.CALLS for i in range(4)}
    made = {case for case, *_ in calls(sweep._entry("cumsum"), "int8", sweep.CASES)}
    assert made >= {f"ordinary {call} dtype" for call in sweep.CALLS}


def test_refusals_are_compared():
    assert sweep.unit("erfinv", "complex64", ("ordinary value 0",), is_computed=False) == []
    problem = sweep.Problem("chalf", "float32", "refused", "ordinary value 0", "")
    assert sweep.unit("chalf", "float32", ("ordinary value 0",))[0].kind == problem.kind
    assert sweep.excused()(problem)


# What the device took and the CPU refuses, and what it takes on purpose.
_REFUSED = (
    *(("add", "float8_e5m2"), ("addcmul", "bool"), ("atan2", "complex64"), ("bucketize", "bool")),
    *(("cauchy", "int32"), ("cdist", "float16"), ("cholesky", "bfloat16"), ("clamp", "bool")),
    *(("cholesky_solve", "int64"), ("deg2rad", "complex128"), ("exponential", "uint8")),
    *(("bernoulli", "int8"), ("cumsum", "bool"), ("div.floor_rounding", "complex64")),
    *(("abs", "uint16"), ("sum", "uint64"), ("_upsample_bilinear2d_aa", "bfloat16")),
)


@pytest.mark.parametrize(("name", "dtype"), _REFUSED)
def test_refusals_are_those_of_the_cpu(name, dtype):
    if IS_NEWER and name == "cholesky":
        pytest.skip("the newer has none")
    is_excused = sweep.excused()
    cases = [case for case in sweep.CASES if case.startswith("ordinary") and case.endswith("0")]
    assert not [p for p in sweep.unit(name, dtype, tuple(cases), False) if not is_excused(p)]


def _refusal(call):
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("size", [3, 700])
def test_refusals_do_not_depend_on_sizes(size):
    matrix = torch.eye(size, dtype=torch.float16)
    want = _refusal(lambda: torch.linalg.cholesky(matrix))
    assert _refusal(lambda: torch.linalg.cholesky(matrix.to("xla"))) == want
    column = torch.ones(size, 1, dtype=torch.uint32)
    want = _refusal(lambda: column.exponential_())
    assert _refusal(lambda: column.to("xla").exponential_()) == want


def test_asking_the_cpu_draws_none_of_its_random_numbers():
    x = torch.ones(5, dtype=torch.bfloat16, device="xla")
    state = torch.get_rng_state()
    x.normal_().exponential_().bernoulli_(0.5)
    assert torch.equal(torch.get_rng_state(), state)


def test_asking_the_cpu_changes_no_operand_and_tells_no_warning(recwarn):
    x = torch.arange(5, dtype=torch.int32)
    y = torch.arange(5, dtype=torch.int32, device="xla").add_(1).mul_(3).clamp_(2, 9)
    assert torch.equal(y.cpu(), x.add_(1).mul_(3).clamp_(2, 9))
    assert not recwarn.list


def test_wide_unsigned_integers_are_as_good_as_bytes():
    x = torch.tensor([3, 1, 2])
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        y = x.to("xla").to(dtype)
        assert (y * y + y).max().item() == 12
        assert y.sort().values.tolist() == [1, 2, 3]
    with pytest.raises(NotImplementedError, match="UInt16"):
        torch.nn.functional.hardswish(x.to(torch.uint16).to("xla"))
