"""Samples of the op database, run on the CPU and on the device.

Many samples of one operator are recorded before the first result is read: the device then compiles
one program for all of them, which is what makes the whole database affordable.
"""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

import torch_xla
from torch_xla._XLAC import _clear_counters, _counter_names, _host_operators

__all__ = [
    *("ARBITRARY_VALUES", "Verdict", "check", "compare", "describe", "entries", "gradients"),
    *("moved", "moved_as_it_lies", "samples", "tensors", "to_device"),
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

    def move(x: object) -> object:
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.is_meta:
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


def _run(op: Callable[..., object], sample: SampleInput) -> list[torch.Tensor]:
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


def describe(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


# Relative and absolute: PyTorch's, but for what XLA's transcendentals and orders of sums differ by.
_TOLERANCES = {
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 2e-3),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}


def compare(
    expected: list[torch.Tensor],
    actual: list[torch.Tensor],
    values: bool,
    computed_in: torch.dtype | None = None,
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
        rtol, atol = _TOLERANCES.get(computed_in or e.dtype, (1e-4, 2e-5))
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


# Entries that tell the position of one of several equal elements, of which any is right.
_POSITIONS = frozenset(("argsort", "kthvalue", "msort", "sort", "topk"))


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


def _as_near(op: OpInfo, sample: SampleInput, cpu: list[torch.Tensor], actual: Any) -> bool:
    """Whether the results are at most twice as far from float64's as the CPU's are.

    The orders in which sums are rounded differ, and XLA rounds a fused formula once."""

    def widened(x: object) -> object:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            return x.detach().double().requires_grad_(x.requires_grad)
        return x

    inputs, args, kwargs = (
        tree_map(widened, part) for part in (sample.input, sample.args, sample.kwargs)
    )
    try:
        exact = _run(op.op, SampleInput(inputs, args=args, kwargs=kwargs))
        exact += gradients(exact, tensors((inputs, args, kwargs)))
    except Exception:  # it has no float64
        return False
    if [e.shape for e in exact] != [e.shape for e in cpu]:
        return False
    for right, e, a in zip(exact, cpu, actual, strict=True):
        if not compare([e], [a], True):
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


def _problem(op: OpInfo, sample: SampleInput, expected: list[torch.Tensor], actual: Any) -> str:
    """How the results differ beyond what is right as well, or nothing."""
    problem = compare(expected, actual, op.name not in ARBITRARY_VALUES)
    if not problem or [(e.dtype, e.shape) for e in expected] != [
        (a.dtype, a.shape) for a in actual
    ]:
        return problem
    if op.name in _POSITIONS:
        pairs = zip(expected, actual, strict=True)
        rest = [
            (e, a)
            for e, a in pairs
            if e.dtype != torch.int64 or not _points_at_equals(sample.input, e, a.cpu())
        ]
        problem = compare([e for e, _ in rest], [a for _, a in rest], True)
    return "" if problem and _as_near(op, sample, expected, actual) else problem


def samples(op: OpInfo, dtype: torch.dtype, with_grad: bool, most: int) -> list[SampleInput]:
    """At most so many of the entry's samples, spread over them; 0: all of them."""
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", dtype, requires_grad=with_grad))
    if most == 0:
        return found
    step = max(1, len(found) // most)
    return found[::step][:most]


# A program of several hundred samples takes XLA more than its share of time and memory.
_SAMPLES_PER_PROGRAM = 24


def check(op: OpInfo, dtype: torch.dtype, backward: bool = True, most: int = 24) -> Verdict:
    """Compare forward results, and gradients where the entry has them, for up to `most` samples
    (0: for all)."""
    if dtype not in op.supported_dtypes("cpu"):
        return Verdict(op.full_name, "skipped", f"no {dtype} on the CPU")
    with_grad = backward and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    verdict = Verdict(op.full_name, "lowered")
    leaves: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = samples(op, dtype, with_grad, most)
        for first in range(0, len(found), _SAMPLES_PER_PROGRAM):
            _check_program(op, found[first : first + _SAMPLES_PER_PROGRAM], first, verdict, leaves)
            if verdict.status in ("refused", "wrong"):
                break
    leaves.discard("aten::_local_scalar_dense")
    verdict.fallbacks = tuple(sorted(leaves))
    if leaves and verdict.status in ("lowered", "custom_call"):
        verdict.status = "dynamic" if leaves == {"DataDependentShape"} else "fallback"
    return verdict


def _check_program(
    op: OpInfo, given: list[SampleInput], first: int, verdict: Verdict, leaves: set[str]
) -> None:
    """Run those samples as one program, and tell the verdict and what left the device."""
    recorded = []
    for index, sample in enumerate(given, first):
        inputs = tensors((sample.input, sample.args, sample.kwargs))
        try:
            expected = _run(op.op, sample)
            expected_grads = gradients(expected, inputs)
        except Exception:  # the CPU refuses the sample: nothing to compare with
            continue
        try:
            # Its samples are parts of a larger memory, at other places of which it reads.
            is_part = op.full_name == "as_strided.partial_views"
            there = moved_as_it_lies(sample) if is_part else moved(sample)
            _clear_counters()
            actual = _run(op.op, there)
            actual_grads = gradients(actual, tensors((there.input, there.args, there.kwargs)))
        except Exception as error:
            verdict.status = "refused" if isinstance(error, NotImplementedError) else "wrong"
            verdict.detail = f"sample {index}: {describe(error)}"
            return
        leaves.update(name for name in _counter_names() if name.startswith(_LEAVES))
        if _CALLS.intersection(_counter_names()):
            verdict.status = "custom_call"
        recorded.append((index, sample, expected + expected_grads, actual + actual_grads))
    try:
        torch_xla.sync()
        for index, sample, expected, actual in recorded:
            if problem := _problem(op, sample, expected, actual):
                verdict.status, verdict.detail = "wrong", f"sample {index}: {problem}"
                return
    except Exception as error:
        verdict.status, verdict.detail = "wrong", describe(error)
    verdict.samples += len(recorded)
