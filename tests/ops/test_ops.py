"""PyTorch's op database on the device: values, gradients, and which operators leave the device.

`tests/ops/op_exceptions.txt` names every entry that does not run wholly on the device, with what is
expected of it; anything else must be right and lowered, and a listed entry that does better fails.
The list is that of the pinned torch: with another one an entry may do better than it says.
No entry does worse than `tools/conformance/float32.txt` says, the source of docs/op_coverage.md.
"""

import pathlib

import op_coverage
import op_samples
import pytest
import torch
from pinned_torch import IS_PINNED

_LIST = pathlib.Path(__file__).with_name("op_exceptions.txt")
_TOLERANCES = ("rounded", "varying", "elsewhere")


def _expected_status() -> dict[str, str]:
    lines = (line.split("#")[0].split() for line in _LIST.read_text().splitlines())
    return {words[1]: words[0] for words in lines if words and words[0] not in _TOLERANCES}


if not IS_PINNED:
    op_samples.ROUNDED.update(op_samples.read_tolerances("elsewhere"))
_EXPECTED = _expected_status()
_ENTRIES = [op for op in op_samples.entries() if torch.float32 in op.supported_dtypes("cpu")]


# How many samples of an entry, where XLA takes seconds for the program of one.
_FEW = {"grid_sampler_3d": 6}
_OPTIMIZED = {"special.hermite_polynomial_he"}  # which rounds by what XLA fuses


def _parameter(op):
    marks = [pytest.mark.optimized] if op.full_name in _OPTIMIZED else []
    return pytest.param(op, id=op.full_name, marks=marks)


@pytest.mark.parametrize("op", [*map(_parameter, _ENTRIES)])
def test_float32_entry_agrees_with_cpu(op):
    verdict = op_samples.check(op, torch.float32, most=_FEW.get(op.full_name, 24))
    expected = _EXPECTED.get(op.full_name, "lowered")
    detail = f"{verdict.detail} {' '.join(verdict.fallbacks)}"
    order = list(op_coverage.DATABASE_MEANING)
    found = verdict.status.replace("custom_call", "lowered")
    is_better = order.index(found) < order.index(expected)
    assert found == expected or (is_better and not IS_PINNED), detail
    table = op_coverage.database()
    told = table[op.full_name] if IS_PINNED else table.get(op.full_name, "custom_call")
    assert order.index(verdict.status) <= order.index(told), "run `make conformance`"


# How far a variant is off depends on the processor: on one or the other it needs no line. An older
# torch may lack the entry or the dtype.
_BY_NAME = {op.full_name: op for op in op_samples.entries()}
_ROUNDED = [
    pytest.param(_BY_NAME[name], getattr(torch, dtype), id=f"{name}-{dtype}")
    for name, dtype in op_samples.ALWAYS_ROUNDED
    if name in _BY_NAME and hasattr(torch, dtype)
]


@pytest.mark.parametrize(("op", "dtype"), _ROUNDED)
def test_rounded_entry_needs_its_tolerance(quick_compilation, op, dtype):
    most = None if dtype == torch.float32 else 48
    assert op_samples.check(op, dtype, most=most).status != "wrong"
    plain = op_samples.check(op, dtype, most=most, with_list=False)
    is_needed = plain.status == "wrong"
    assert is_needed or not IS_PINNED, "PyTorch's tolerance suffices: take it off the list"


def test_exceptions_are_entries_of_the_database():
    assert not IS_PINNED or not set(_EXPECTED) - {op.full_name for op in _ENTRIES}
    assert not IS_PINNED or all(name in _BY_NAME for name, _ in op_samples.ALWAYS_ROUNDED)
