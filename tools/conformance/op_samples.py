"""Samples of the op database, run on the CPU and on the device.

Many samples of one operator are recorded before the first result is read: the device then compiles
one program for them, which is what makes the whole database affordable.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

import torch_xla
from torch_xla._XLAC import _clear_counters, _counter_names, _host_operators

__all__ = [
    *(
        "ALWAYS_ROUNDED",
        "ARBITRARY_VALUES",
        "HALVES",
        "POSITIONS",
        "ROUNDED",
        "Tolerance",
        "Verdict",
        "as_near",
    ),
    *("check", "compare", "compare_chosen", "describe", "difference", "entries", "gradients"),
    *("moved", "moved_as_it_lies", "read_tolerances", "run", "samples", "tensors"),
    *("to_device", "widened"),
]


@dataclasses.dataclass
class Verdict:
    """What came of one entry: `status` is "lowered", "custom_call" (of PyTorch's kernels, inside of
    the program), "dynamic" (results sized by data), "fallback", "refused" (tensors that do not
    exist here), "wrong" or "skipped"."""

    name: str
    status: str
    detail: str = ""
    fallbacks: tuple[str, ...] = ()
    samples: int = 0


def entries() -> list[OpInfo]:
    """The database's entries, by name."""
    return sorted(op_db, key=lambda op: op.full_name)


def to_device(value: object) -> object:
    """The same nest with its tensors and devices on the device; a tensor in it twice stays one."""
    seen: dict[int, torch.Tensor] = {}

    def move(x: object) -> object:
        if isinstance(x, torch.Tensor):
            if id(x) not in seen:
                seen[id(x)] = x.detach().to("xla").requires_grad_(x.requires_grad)
            return seen[id(x)]
        if isinstance(x, torch.device) or x == "cpu":
            return torch.device("xla")
        return x

    return tree_map(move, value)


def moved(sample: SampleInput) -> SampleInput:
    """The sample on the device."""
    return SampleInput(
        to_device(sample.input),
        args=to_device(sample.args),
        kwargs=to_device(sample.kwargs),
        broadcasts_input=sample.broadcasts_input,
    )


def moved_as_it_lies(sample: SampleInput) -> SampleInput:
    """The sample on the device, with its tensors' strides, and with the memory that they share."""
    memory: dict[int, torch.Tensor] = {}
    seen: dict[int, object] = {}

    def move(x: object) -> object:
        if not isinstance(x, torch.Tensor):
            return to_device(x)
        if id(x) not in seen:
            seen[id(x)] = lay(x)
        return seen[id(x)]

    def lay(x: torch.Tensor) -> object:
        if x.layout != torch.strided or x.is_meta:
            return to_device(x)
        storage = x.untyped_storage()
        key = storage._cdata
        if key not in memory:
            flat = torch.empty(0, dtype=x.dtype).set_(storage)
            memory[key] = flat.detach().to("xla")
        base = memory[key]
        if base.dtype != x.dtype:
            base = base.view(x.dtype)
        there = base.as_strided(x.shape, x.stride(), x.storage_offset())
        if x.is_conj():
            there = there.conj()
        return there.detach().requires_grad_(x.requires_grad)

    return SampleInput(
        tree_map(move, sample.input),
        args=tree_map(move, sample.args),
        kwargs=tree_map(move, sample.kwargs),
        broadcasts_input=sample.broadcasts_input,
    )


def tensors(value: object) -> list[torch.Tensor]:
    """Those in a nest of lists, tuples and dicts."""
    return [x for x in tree_flatten(value)[0] if isinstance(x, torch.Tensor)]


def run(op: Callable[..., object], sample: SampleInput) -> list[torch.Tensor]:
    """What the call gives, with the same random numbers each time."""
    torch.manual_seed(0)
    random.seed(0)
    return tensors(op(sample.input, *sample.args, **sample.kwargs))


def gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of the sum of the outputs, in those inputs that require them."""
    outputs = [o for o in outputs if o.requires_grad]
    inputs = [i for i in inputs if i.requires_grad]
    if not outputs or not inputs:
        return []
    seeds = [torch.ones_like(o) for o in outputs]
    grads = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return [g for g in grads if g is not None]


# Entries whose values the CPU draws at random or leaves uninitialised: types are compared alone.
_ARBITRARY = """
bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal
multinomial new_empty new_empty_strided nn.functional.alpha_dropout nn.functional.dropout
nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
nn.functional.multi_head_attention_forward nn.functional.rrelu normal pca_lowrank rand_like
randint randint_like randn randn_like svd_lowrank uniform torch.ops.aten._flash_attention_forward
nn.functional.scaled_dot_product_attention
"""
ARBITRARY_VALUES = frozenset(_ARBITRARY.split())


# The counters of what leaves the device, and of what programs for the CPU call.
_LEAVES = ("aten::", "DataDependentShape")
_CALLS = frozenset(f"xla::{name}" for name in _host_operators())


def describe(error: BaseException | None) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far results may be from the CPU's: PyTorch's own tolerance for the dtypes of the result
    and of the computation, what PyTorch's tests allow the entry, and what our list does."""

    computed_in: torch.dtype | None = None
    op: OpInfo | None = None
    with_list: bool = True
    variant: str = ""

    def of(self, result: torch.dtype) -> tuple[float, float]:
        """Relative and absolute."""
        if not (result.is_floating_point or result.is_complex):
            return 0, 0
        if result.itemsize == 1:  # torch compares these bit by bit alone
            return 0, 0
        computed_in = self.computed_in or result
        # Functions of integers have float32's results.
        is_inexact = computed_in.is_floating_point or computed_in.is_complex
        found = [default_tolerances(result, computed_in if is_inexact else torch.float32)]
        if self.op is not None:
            found += _allowed_by_tests(self.op, computed_in)
            if self.with_list:
                dtype = str(computed_in).removeprefix("torch.")
                is_float32 = computed_in == torch.float32
                variant = self.variant if is_float32 else f"{self.variant} {dtype}"
                for what in (dtype, variant):
                    found += ROUNDED.get((self.op.full_name, what), [])
        return max(rtol for rtol, _ in found), max(atol for _, atol in found)


def _allowed_by_tests(op: OpInfo, dtype: torch.dtype) -> list[tuple[float, float]]:
    overrides = [d for info in op.decorators for d in getattr(info, "decorators", ())]
    allowed = [d.d[dtype] for d in overrides if isinstance(d, toleranceOverride) and dtype in d.d]
    return [(tolerance.rtol, tolerance.atol) for tolerance in allowed]


def read_tolerances(*kinds: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Those of `tests/ops/op_exceptions.txt`, by entry and what it is said of."""
    path = pathlib.Path(__file__).resolve().parents[2] / "tests" / "ops" / "op_exceptions.txt"
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return {
        (words[1], " ".join(words[2:-2])): [(float(words[-2]), float(words[-1]))]
        for words in lines
        if words and words[0] in kinds
    }


# By entry, and dtype, variant (of float32) or variant and dtype, where XLA rounds otherwise:
# on every processor, and all.
ALWAYS_ROUNDED = read_tolerances("rounded")
ROUNDED = ALWAYS_ROUNDED | read_tolerances("varying")


def compare(
    expected: list[torch.Tensor],
    actual: list[torch.Tensor],
    values: bool = True,
    tolerance: Tolerance | tuple[float, float] = Tolerance(),
) -> str:
    """How the results differ, or nothing; of arbitrary values the types alone."""
    if len(expected) != len(actual):
        return f"{len(expected)} results on the CPU, {len(actual)} on the device"
    for e, a in zip(expected, actual, strict=True):
        if e.dtype != a.dtype:
            return f"dtype {a.dtype}, expected {e.dtype}"
        if e.shape != a.shape:
            return f"shape {tuple(a.shape)}, expected {tuple(e.shape)}"
        if not values:
            a.cpu()
            continue
        rtol, atol = tolerance.of(e.dtype) if isinstance(tolerance, Tolerance) else tolerance
        try:
            torch.testing.assert_close(
                a.detach().cpu().resolve_conj(),
                e.detach().resolve_conj(),
                rtol=rtol,
                atol=atol,
                equal_nan=True,
                check_stride=False,
            )
        except AssertionError as error:
            return " ".join(str(error).split())[:300]
    return ""


HALVES = (torch.bfloat16, torch.float16)

# Entries that tell the position of one of several equal elements, of which any is right.
POSITIONS = frozenset(("argsort", "kthvalue", "mode", "msort", "sort", "topk"))


def _points_at_equals(x: torch.Tensor, expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether two tensors of positions choose equal elements along one of the dimensions."""
    for dim in range(x.dim()):
        is_reduced = expected.dim() < x.dim()
        e, a = (i.unsqueeze(dim) if is_reduced else i for i in (expected, actual))
        # The elements themselves may be integers too.
        if any(i.numel() and (i.min() < 0 or i.max() >= x.shape[dim]) for i in (e, a)):
            continue
        if torch.equal(x.gather(dim, e), x.gather(dim, a)):
            return True
    return False


def compare_chosen(
    x: torch.Tensor,
    expected: list[torch.Tensor],
    actual: list[torch.Tensor],
    tolerance: Tolerance,
) -> str:
    """How the results differ beyond positions of equal elements of `x`, or nothing."""
    rest = [
        (e, a)
        for e, a in zip(expected, actual, strict=True)
        if e.dtype != torch.int64 or not _points_at_equals(x, e, a.cpu())
    ]
    return compare([e for e, _ in rest], [a for _, a in rest], tolerance=tolerance)


def widened(sample: SampleInput, dtype: torch.dtype) -> SampleInput:
    """The sample in float64, also where it asks for `dtype`."""

    def widen(x: object) -> object:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            return x.detach().double().requires_grad_(x.requires_grad)
        return torch.float64 if x == dtype else x

    inputs, args, kwargs = (
        tree_map(widen, part) for part in (sample.input, sample.args, sample.kwargs)
    )
    return SampleInput(inputs, args=args, kwargs=kwargs, broadcasts_input=sample.broadcasts_input)


def as_near(
    exact: list[torch.Tensor],
    cpu: list[torch.Tensor],
    actual: list[torch.Tensor],
    tolerance: Tolerance,
) -> bool:
    """Whether the results that differ are at most twice as far from float64's as the CPU's are.

    For half precision: XLA rounds a fused formula once, where PyTorch rounds each of its parts."""
    if [e.shape for e in exact] != [e.shape for e in cpu]:
        return False
    for right, e, a in zip(exact, cpu, actual, strict=True):
        if not compare([e], [a], tolerance=tolerance):
            continue
        if not e.is_floating_point():
            return False
        of_cpu, ours = (
            torch.where(x.double() == right, 0, (x.detach().double() - right).abs())
            for x in (e, a.cpu())
        )
        both = of_cpu.isnan() & ours.isnan()
        of_cpu, ours = (x.masked_fill(both, 0).nan_to_num(torch.inf) for x in (of_cpu, ours))
        if ours.numel() and (ours.max() > 2 * of_cpu.max() or ours.mean() > 2 * of_cpu.mean()):
            return False
    return True


def _exact(op: OpInfo, sample: SampleInput) -> list[torch.Tensor]:
    """Results and gradients in float64; none if the entry has no float64."""
    try:
        results = run(op.op, sample)
        return results + gradients(results, tensors((sample.input, sample.args, sample.kwargs)))
    except Exception:
        return []


def difference(
    op: OpInfo, sample: SampleInput, expected: list[torch.Tensor], actual: Any, tolerance: Tolerance
) -> str:
    """How the results differ beyond what is right as well, or nothing."""
    problem = compare(expected, actual, op.name not in ARBITRARY_VALUES, tolerance)
    if not problem or [(e.dtype, e.shape) for e in expected] != [
        (a.dtype, a.shape) for a in actual
    ]:
        return problem
    if op.name in POSITIONS:
        problem = compare_chosen(sample.input, expected, actual, tolerance)
    if problem and tolerance.computed_in in HALVES:
        exact = _exact(op, widened(sample, tolerance.computed_in))
        return "" if as_near(exact, expected, actual, tolerance) else problem
    return problem


def samples(
    op: OpInfo, dtype: torch.dtype, with_grad: bool, most: int | None
) -> Iterable[SampleInput]:
    """The entry's samples; at most so many, spread over them."""
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", dtype, requires_grad=with_grad))
    if most is None:
        return found
    step = max(1, len(found) // most)
    return found[::step][:most]


class _SampleError(Exception):
    """What the device raised for a sample that the CPU takes, as its cause."""


def _record(
    op: OpInfo, found: Iterable[SampleInput], counters: set[str]
) -> Iterator[tuple[int, SampleInput, list[torch.Tensor], list[torch.Tensor]]]:
    """Each sample with its results and gradients on the CPU and on the device, not computed yet."""
    for index, sample in enumerate(found):
        inputs = tensors((sample.input, sample.args, sample.kwargs))
        try:
            expected = run(op.op, sample)
            expected += gradients(expected, inputs)
        except Exception:  # the CPU refuses the sample: nothing to compare with
            continue
        try:
            # Its samples are parts of a larger memory, at other places of which it reads.
            is_part = op.full_name == "as_strided.partial_views"
            there = moved_as_it_lies(sample) if is_part else moved(sample)
            _clear_counters()
            actual = run(op.op, there)
            actual += gradients(actual, tensors((there.input, there.args, there.kwargs)))
        except Exception as error:
            raise _SampleError(index) from error
        counters.update(_counter_names())
        yield index, sample, expected, actual


# A program of several hundred samples takes XLA more than its share of time and memory.
_SAMPLES_PER_PROGRAM = 24


def check(
    op: OpInfo,
    dtype: torch.dtype,
    backward: bool = True,
    most: int | None = 24,
    with_list: bool = True,
) -> Verdict:
    """Compare forward results, and gradients where the entry has them, for up to `most` samples;
    without the list, by PyTorch's tolerances alone."""
    name = op.full_name
    if dtype not in op.supported_dtypes("cpu"):
        return Verdict(name, "skipped", f"no {dtype} on the CPU")
    with_grad = backward and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    tolerance = Tolerance(dtype, op, with_list)
    counters: set[str] = set()
    count = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            recorded = _record(op, samples(op, dtype, with_grad, most), counters)
            while batch := list(itertools.islice(recorded, _SAMPLES_PER_PROGRAM)):
                torch_xla.sync()
                for index, sample, expected, actual in batch:
                    if problem := difference(op, sample, expected, actual, tolerance):
                        return Verdict(name, "wrong", f"sample {index}: {problem}")
                count += len(batch)
    except _SampleError as error:
        cause = error.__cause__
        status = "refused" if isinstance(cause, NotImplementedError) else "wrong"
        return Verdict(name, status, f"sample {error.args[0]}: {describe(cause)}")
    except Exception as error:
        return Verdict(name, "wrong", describe(error))
    left = {counter for counter in counters if counter.startswith(_LEAVES)}
    left.discard("aten::_local_scalar_dense")
    status = "custom_call" if _CALLS & counters else "lowered"
    if left:
        status = "dynamic" if left == {"DataDependentShape"} else "fallback"
    return Verdict(name, status, "", tuple(sorted(left)), count)
