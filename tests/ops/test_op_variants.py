"""The other ways to call an operator: strides, aliasing, in place, `out=`, twice differentiated,
wrongly; other dtypes; and PyTorch's databases of modules and optimizers.

A fixed part of the entries, so that a run stays short; `tools/conformance` has them all. What is
known to differ stands in `tests/ops/op_variant_exceptions.txt`, strictly with the pinned torch;
with another one an entry may do better, and what differs there alone is in
`tests/ops/op_variant_exceptions_elsewhere.txt`.
"""

from __future__ import annotations

import pathlib
import re

import modules
import op_samples
import op_variants
import optimizers
import pytest
import torch
from pinned_torch import IS_PINNED
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map_only

_LISTS = ("op_variant_exceptions.txt", "op_variant_exceptions_elsewhere.txt")
_PART = [op for op in op_samples.entries()[::16] if torch.float32 in op.supported_dtypes("cpu")]
_DTYPES = (
    *(torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8),
    *(torch.bool, torch.complex64),
)
# Pairs of an entry and a dtype that it has.
_TYPED = [
    (op, dtype)
    for op in op_samples.entries()[3::40]
    for dtype in _DTYPES
    if dtype in op.supported_dtypes("cpu")
]
# The variants of more pairs, without those that a dtype does not change.
_VARIED = [
    (op, dtype)
    for op in op_samples.entries()[5::40]
    for dtype in _DTYPES
    if dtype in op.supported_dtypes("cpu")
]
# Of which the database says so without a ground, or that take several named ones.
_WITHOUT_OUT = ("equal", "histogramdd", "_batch_norm_with_update")
_WITH_OUT = [
    op
    for op in op_samples.entries()
    if op.supports_out
    and torch.float32 in op.supported_dtypes("cpu")
    and op.name not in _WITHOUT_OUT
]
_OF_VALUES = tuple(v for v in op_variants.VARIANTS if v not in ("strides", "aliasing", "error"))


def _exceptions() -> set[tuple[str, str]]:
    """Pairs of an entry and what differs about it."""
    folder = pathlib.Path(__file__).parent
    texts = [(folder / name).read_text() for name in (_LISTS[:1] if IS_PINNED else _LISTS)]
    lines = (line.split("#")[0].strip() for text in texts for line in text.splitlines())
    return {(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in lines if line}


_EXCEPTIONS = _exceptions()


def _expected(name: str) -> set[str]:
    return {what for entry, what in _EXCEPTIONS if entry == name}


def _is_as_listed(found: set[str], listed: set[str]) -> bool:
    return found == listed if IS_PINNED else found <= listed


def _differing(op: OpInfo) -> set[str]:
    """Variants that the list says differ in float32."""
    return _expected(op.full_name) & set(op_variants.VARIANTS)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(
    "op", [op for op in _PART if not _differing(op)], ids=lambda op: op.full_name
)
def test_variants_agree_with_cpu(op):
    problems = op_variants.check(op, torch.float32, op_variants.VARIANTS, most=2)
    assert not problems, problems


@pytest.mark.parametrize("op", [op for op in _PART if _differing(op)], ids=lambda op: op.full_name)
def test_listed_variants_differ(op):
    # It may show in a later sample only, and as XLA rounds what it compiles with care.
    problems = op_variants.check(op, torch.float32, op_variants.VARIANTS, most=None)
    assert _is_as_listed({p.variant for p in problems}, _differing(op)), problems


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(("op", "dtype"), _TYPED, ids=lambda p: getattr(p, "full_name", str(p)))
def test_other_dtypes_agree_with_cpu(op, dtype):
    verdict = op_samples.check(op, dtype, most=2)
    differs = {str(dtype)} if verdict.status == "wrong" else set()
    expected = _expected(op.full_name) & {str(dtype)}
    assert _is_as_listed(differs, expected), verdict.detail


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize(("op", "dtype"), _VARIED, ids=lambda p: getattr(p, "full_name", str(p)))
def test_variants_of_other_dtypes_agree_with_cpu(op, dtype):
    known = _expected(op.full_name)
    required = {v for v in op_variants.VARIANTS if f"{v} {dtype}" in known}
    most = 8 if required else 2  # as many as found them
    found = {p.variant: p for p in op_variants.check(op, dtype, _OF_VALUES, most)}
    assert required <= set(found) or not IS_PINNED, "does better than its line"
    # What differs in float32 may differ here too.
    new = set(found) - required - known
    assert not new, [found[variant] for variant in new]


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("info", modules.entries()[::8], ids=lambda info: info.name)
def test_module_agrees_with_cpu(info):
    problems = modules.check(info, torch.float32)
    assert bool(problems) == ("module" in _expected(info.name)), problems


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("info", optimizers.entries(), ids=lambda info: info.optim_cls.__name__)
def test_optimizer_agrees_with_cpu(info):
    problems = optimizers.check(info, most=3)
    assert bool(problems) == ("optimizer" in _expected(info.optim_cls.__name__)), problems


def _takes_out_of_cpu(op: OpInfo) -> bool:
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    arguments = (sample.input, *sample.args), sample.kwargs
    results = op.op(*arguments[0], **arguments[1])
    try:
        args, kwargs = op_samples.to_device(arguments)
        op.op(*args, **kwargs, out=tree_map_only(torch.Tensor, torch.empty_like, results))
    except RuntimeError as error:
        assert re.search("not an XLA tensor|[Dd]evice", str(error)), f"{op.full_name}: {error}"
        return False
    return True


@pytest.mark.filterwarnings("ignore")  # of deprecated operators
def test_out_on_another_device_is_refused():
    # lu is a function in Python, which copies.
    assert [op.name for op in _WITH_OUT if _takes_out_of_cpu(op)] == ["lu"]


def test_exceptions_are_entries():
    names = {op.full_name for op in op_samples.entries()}
    names |= {info.name for info in modules.entries()}
    names |= {info.optim_cls.__name__ for info in optimizers.entries()}
    assert not IS_PINNED or {entry for entry, _ in _EXCEPTIONS} <= names
