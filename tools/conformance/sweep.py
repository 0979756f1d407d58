"""Every operator of the database x every dtype x {ordinary, 0-d, empty} x {value, `out=`, in place}
against the CPU: values, and whether and with which class of error a call is refused.

The values of floats are asked for once more with NaN and infinities among the numbers. Operators
over lists have a sample for each kind of their last argument, and what takes `dtype=` one
that asks for another dtype. The database says which dtypes the CPU's kernels have and makes samples
of those alone. Here a sample of one dtype is converted to each of the others. `unit` is one entry
in one dtype, whose results are computed in one program; what makes a process die is found again
case by case.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import math
import numbers
import pathlib
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import op_samples
import torch
import workers
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.opinfo.core import ForeachFuncInfo, OpInfo
from torch.utils._pytree import tree_map, tree_map_only

import torch_xla

__all__ = ["CASES", "DTYPES", "Problem", "dies", "entries", "excused", "problems", "unit"]

DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128"),
)
SHAPES = ("ordinary", "0-d", "empty")
CALLS = ("value", "out", "in_place")
_SAMPLES = 2
_KINDS = 4  # of the last argument over lists: tensors, a tensor, numbers, a number
CASES = tuple(
    f"{shape} {call} {sample}"
    for shape in SHAPES
    for call in CALLS
    for sample in (*range(_KINDS), "dtype")
) + tuple(f"special value {sample}" for sample in range(_SAMPLES))
# LAPACK may end the process over what is not finite; each library's transforms make NaN elsewhere.
_OF_FINITE = (
    *("linalg.", "fft.", "cholesky", "geqrf", "lu", "norm.nuc", "ormqr", "pca_lowrank", "pinverse"),
    *("qr", "svd"),
)
# PyTorch's own kernel ends the process.
_DEADLY_ON_CPU = (("_chunk_cat", "0-d"),)
_LIST = pathlib.Path(__file__).resolve().parents[2] / "tests" / "ops" / "sweep_exceptions.txt"


@dataclasses.dataclass(frozen=True)
class Problem:
    """`kind` is "accepted" (the CPU refuses), "refused" (the CPU does not), "error" (of another
    class than the CPU's), "value" or "died"."""

    entry: str
    dtype: str
    kind: str
    case: str
    detail: str


def entries() -> list[OpInfo]:
    """The database's entries, and those of operators over lists."""
    over_lists = (
        *(*foreach_unary_op_db, *foreach_binary_op_db, *foreach_pointwise_op_db),
        *(*foreach_reduce_op_db, *foreach_other_op_db),
    )
    return [*op_samples.entries(), *sorted(over_lists, key=lambda op: op.full_name)]


def unit(
    name: str, dtype: str, cases: tuple[str, ...] = CASES, is_computed: bool = True
) -> list[Problem]:
    """The problems of an entry in one dtype; of a call that is only recorded, whether and how it is
    refused."""
    op = _entry(name)
    found: list[Problem] = []
    compared: list[tuple[str, Any, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case, call, sample in _calls(op, dtype, cases):
            cpu = _attempt(call, sample)
            if _is_of_data(cpu):
                continue
            device = _attempt(call, op_samples.to_device(sample))
            kind = _differs(cpu, device)
            if kind in ("refused", "error") and _is_for_no_data(case, device):
                continue
            if kind:
                detail = f"CPU: {_text(cpu)}; device: {_text(device)}"
                found.append(Problem(name, dtype, kind, case, detail))
            elif is_computed and not isinstance(cpu, Exception):
                compared.append((case, cpu, device))
        found += _compare(op, dtype, compared)
    return found


def on_cpu(name: str, dtype: str, case: str) -> None:
    """The CPU's part of a case alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, call, sample in _calls(_entry(name), dtype, (case,)):
            _attempt(call, sample)


def dies(name: str, dtype: str, how: str, timeout_s: float) -> list[Problem]:
    """The problems of an entry whose process died, each case in a process that may."""
    alone, cpu = (workers.Worker(f"sweep:{f}", timeout_s) for f in ("unit", "on_cpu"))
    found: list[Problem] = []
    for case in CASES:
        answer = alone.ask(name, dtype, (case,))
        if isinstance(answer, list):
            found += answer
        elif not isinstance(cpu.ask(name, dtype, case), workers.Died):
            found.append(Problem(name, dtype, "died", case, str(answer)))
        else:
            how = ""  # PyTorch's own kernel dies of it
    alone.close()
    cpu.close()
    if how and all(problem.kind != "died" for problem in found):
        found.append(Problem(name, dtype, "died", "all together", how))
    return found


def problems(
    entries: list[str], dtypes: tuple[str, ...], jobs: int = 1, timeout_s: float = 300
) -> Iterator[Problem]:
    """Those of each entry in each dtype, by child processes."""
    tasks = list(itertools.product(entries, dtypes))
    for (name, dtype), answer in workers.run("sweep:unit", tasks, jobs, timeout_s):
        if isinstance(answer, workers.Died):
            yield from dies(name, dtype, answer.how, timeout_s)
        elif isinstance(answer, workers.Raised):
            yield Problem(name, dtype, "died", "tool", answer.text)
        else:
            yield from answer


def excused() -> Callable[[Problem], bool]:
    """Whether a problem stands in tests/ops/sweep_exceptions.txt: lines of kinds, an entry (`*` for
    any part of its name), dtypes (`*` for all) and, if not any, a shape; then the reason."""
    lines = (line.split("#")[0].split() for line in _LIST.read_text().splitlines())
    rules = [
        (kinds.split(","), entry, dtypes.split(","), shape)
        for kinds, entry, dtypes, *shape in filter(None, lines)
    ]

    def is_excused(problem: Problem) -> bool:
        return any(
            problem.kind in kinds
            and fnmatch.fnmatchcase(problem.entry, entry)
            and (dtypes == ["*"] or problem.dtype in dtypes)
            and (not shape or problem.case.split()[0] in shape)
            for kinds, entry, dtypes, shape in rules
        )

    return is_excused


def _entry(name: str) -> OpInfo:
    return next(op for op in entries() if op.full_name == name)


def _calls(
    op: OpInfo, dtype: str, cases: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """A case's name, the call, and its sample on the CPU."""
    samples = _samples(op, getattr(torch, dtype))
    for case in cases:
        shape, call, index = case.split()
        if index not in samples or (op.full_name, shape) in _DEADLY_ON_CPU:
            continue
        if shape == "special" and not _takes_special(op, dtype):
            continue
        sample = tree_map(lambda x, shape=shape: _shaped(x, shape), samples[index])
        function = _function(op, call, sample)
        if function is not None:
            yield case, function, sample


def _samples(op: OpInfo, dtype: torch.dtype) -> dict[str, Any]:
    """(input, args, kwargs) of the dtype, from samples of one that the CPU has."""
    has = op.supported_dtypes("cpu")
    is_integral = not (dtype.is_floating_point or dtype.is_complex)
    first = (torch.int64, torch.float32) if is_integral else (torch.float32, torch.int64)
    source = next((d for d in (dtype, *first, *has) if d in has), None)
    if source is None:
        return {}
    torch.manual_seed(0)
    random.seed(0)
    found: dict[str, Any] = {
        str(i): tree_map(lambda x: _converted(x, source, dtype), nest)
        for i, nest in enumerate(_samples_of(op, source))
    }
    if found and _takes_dtype(op):
        sample, args, kwargs = found["0"]
        found["dtype"] = sample, args, kwargs | {"dtype": _OTHER.get(dtype, torch.float64)}
    return found


_OTHER = {torch.float64: torch.float32, torch.complex64: torch.complex128}


def _samples_of(op: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    """The first, or of operators over lists one for each kind of last argument."""
    is_over_lists = isinstance(op, ForeachFuncInfo)
    options = {"num_input_tensors": [3]} if is_over_lists else {}
    samples = op.sample_inputs("cpu", dtype, **options)
    nests = ((sample.input, sample.args, sample.kwargs) for sample in samples)
    strided = (n for n in nests if all(x.layout == torch.strided for x in op_samples.tensors(n)))
    if not is_over_lists:
        return itertools.islice(strided, _SAMPLES)
    found: dict[tuple[bool, bool], Any] = {}
    for nest in strided:
        found.setdefault(_kind_of_last(nest[1]), nest)
    return iter(found.values())


def _kind_of_last(args: tuple[Any, ...]) -> tuple[bool, bool]:
    """Whether it is a list, and whether of numbers."""
    last = args[-1] if args else None
    first = last[0] if isinstance(last, (list, tuple)) else last
    return first is not last, isinstance(first, numbers.Number)


def _takes_dtype(op: OpInfo) -> bool:
    packet = getattr(torch.ops.aten, op.aten_name, None)
    overloads = [getattr(packet, name) for name in packet.overloads()] if packet else []
    return any(a.name == "dtype" for o in overloads for a in o._schema.arguments)


def _converted(x: object, source: torch.dtype, dtype: torch.dtype) -> object:
    if not isinstance(x, torch.Tensor) or x.dtype != source:
        return x
    x = x.detach()
    if x.dtype == dtype:
        return x
    is_unsigned = dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    return (x.abs() if is_unsigned and source != torch.bool else x).to(dtype)


def _shaped(x: object, shape: str) -> object:
    if not isinstance(x, torch.Tensor) or shape == "ordinary":
        return x
    if shape == "empty":
        return x[:0] if x.dim() > 0 else x
    if shape == "special":
        return _with_special(x) if x.is_floating_point() else x
    return x.reshape(-1)[0].clone() if x.numel() > 0 else x


def _takes_special(op: OpInfo, dtype: str) -> bool:
    is_over_lists = isinstance(op, ForeachFuncInfo)
    is_floating = getattr(torch, dtype).is_floating_point
    return is_floating and not is_over_lists and not op.full_name.startswith(_OF_FINITE)


def _with_special(x: torch.Tensor) -> torch.Tensor:
    """A fifth of the numbers, and at least one, are NaN, infinities and -0."""
    out = x.detach().clone(memory_format=torch.contiguous_format)
    count = max(1, out.numel() // 5) if out.numel() > 0 else 0
    places = torch.randperm(out.numel(), generator=torch.Generator().manual_seed(0))[:count]
    values = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    out.view(-1)[places] = values.repeat(count // 4 + 1)[:count].to(out.dtype)
    return out


def _function(op: OpInfo, call: str, sample: Any) -> Callable[[Any], Any] | None:
    if isinstance(op, ForeachFuncInfo):
        return _function_over_lists(op, call, sample)
    if call == "value":
        return lambda s: op.op(s[0], *s[1], **s[2])
    if call == "in_place":
        variant = op.inplace_variant
        if variant is None or not isinstance(sample[0], torch.Tensor):
            return None
        return lambda s: variant(s[0].clone(), *s[1], **s[2])
    if not op.supports_out or "out" in sample[2]:
        return None
    results = _attempt(lambda s: op.op(s[0], *s[1], **s[2]), sample)
    if isinstance(results, Exception):
        return None
    return lambda s: op.op(s[0], *s[1], **s[2], out=_outs(results, s))


def _function_over_lists(op: OpInfo, call: str, sample: Any) -> Callable[[Any], Any] | None:
    """Those that return nothing give the list that they have written."""

    def written(function: Callable[[list[torch.Tensor]], Any], tensors: list[torch.Tensor]) -> Any:
        function(tensors)
        return tensors

    variant: Callable[..., Any] | None = op.inplace_variant
    if call == "in_place":
        if variant is None:
            return None
        return lambda s: written(lambda x: variant(x, *s[1], **s[2]), [x.clone() for x in s[0]])
    if not op.supports_out:  # in place alone
        return None
    if call == "value":
        return lambda s: op.op(s[0], *s[1], **s[2])
    results = _attempt(lambda s: op.op(s[0], *s[1], **s[2]), sample)
    if isinstance(results, Exception):
        return None
    packet = getattr(torch.ops.aten, op.name)
    return lambda s: written(
        lambda out: packet(s[0], *s[1], **s[2], out=out), list(_outs(results, s))
    )


def _outs(results: Any, sample: Any) -> Any:
    """Tensors to write such results to, where the sample lies."""
    device = next((x.device for x in op_samples.tensors(sample)), sample[2].get("device", "cpu"))
    return tree_map_only(
        torch.Tensor, lambda x: torch.empty_like(x, device=device), tuple_of(results)
    )


def tuple_of(results: Any) -> Any:
    """Named tuples as plain ones, which `out=` takes."""
    return tuple(results) if isinstance(results, tuple) else results


def _attempt(call: Callable[[Any], Any], sample: Any) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    try:
        return call(sample)
    except Exception as error:
        return error


def _is_of_data(outcome: Any) -> bool:
    """Whether only the data told the CPU: the device does not look at them (docs/errors.md)."""
    return isinstance(outcome, Exception) and "ZeroDivisionError" in str(outcome)


def _is_for_no_data(case: str, outcome: Exception) -> bool:
    """Whether a dtype is refused where the CPU's kernels, with one element or none, return or find
    another fault before they look at it."""
    return not case.startswith("ordinary") and "not implemented for" in str(outcome)


def _differs(cpu: Any, device: Any) -> str:
    if isinstance(cpu, Exception):
        if not isinstance(device, Exception):
            return "accepted"
        # Which of two wrong things is told first is no one's promise, nor how Python words its own.
        return "" if type(cpu) is type(device) else "error"
    return "refused" if isinstance(device, Exception) else ""


def _text(outcome: Any) -> str:
    return op_samples.describe(outcome) if isinstance(outcome, Exception) else "no error"


def _compare(op: OpInfo, dtype: str, compared: list[tuple[str, Any, Any]]) -> Iterator[Problem]:
    with_values = op.name not in op_samples.ARBITRARY_VALUES
    tolerance = op_samples.Tolerance(getattr(torch, dtype), op)
    torch_xla.sync()
    for case, cpu, device in compared:
        results = op_samples.tensors(cpu), op_samples.tensors(device)
        try:
            detail = op_samples.compare(*results, with_values, tolerance)
        except Exception as error:
            detail = op_samples.describe(error)
        if detail:
            yield Problem(op.full_name, dtype, "value", case, detail)
