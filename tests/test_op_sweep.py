"""A fixed part of the sweep over operators, dtypes, 0-d and empty tensors, `out=` and in place,
with its exceptions; `python tools/conformance --sweep` has all of it."""

from __future__ import annotations

import pytest
import sweep

_ENTRIES = ("eq", "erfinv", "maximum", "sgn", "where")
_DTYPES = ("bool", "uint8", "int32", "float32", "complex64")


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("name", _ENTRIES)
@pytest.mark.parametrize("dtype", _DTYPES)
def test_calls_agree_with_cpu(name, dtype):
    is_excused = sweep.excused()
    assert not [p for p in sweep.unit(name, dtype) if not is_excused(p)]


def test_refusals_are_compared():
    assert sweep.unit("erfinv", "complex64", ("ordinary value 0",), is_computed=False) == []
    problem = sweep.Problem("chalf", "float32", "refused", "ordinary value 0", "")
    assert sweep.unit("chalf", "float32", ("ordinary value 0",))[0].kind == problem.kind
    assert sweep.excused()(problem)
