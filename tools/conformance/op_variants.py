"""The other ways to call an entry of the op database: in place, with `out=`, on inputs that are not
contiguous, twice differentiated, wrongly. Each is done on the CPU and on the device.

Variants of one entry are recorded together before the first value is read, so that the device
compiles few programs.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator

import op_samples
import torch
from torch.autograd import forward_ad
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

import torch_xla

__all__ = ["VARIANTS", "Problem", "check"]


@dataclasses.dataclass
class Problem:
    """What went differently on the device."""

    variant: str
    sample: str
    detail: str


@dataclasses.dataclass
class _Outcome:
    """What a call gave: tensors, facts that do not need their values, or an error."""

    tensors: list[torch.Tensor] = dataclasses.field(default_factory=list)
    facts: object = None
    error: Exception | None = None
    # Of which element the results may tell the position.
    chosen_from: object = None


def _arguments(sample: SampleInput) -> list[torch.Tensor]:
    return op_samples.tensors((sample.input, sample.args, sample.kwargs))


def _apply(op: Callable[..., object], sample: SampleInput) -> list[torch.Tensor]:
    return op_samples.tensors(op(sample.input, *sample.args, **sample.kwargs))


def _layout(tensor: torch.Tensor) -> list[int]:
    """Strides of the dimensions in which there is a step to take."""
    if not tensor.numel():
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _lies_in_rows(tensor: torch.Tensor) -> bool:
    """What `is_contiguous()` says on the CPU; on the device it is always true."""
    expected = torch.empty(tensor.shape, device="meta").stride()
    return all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(tensor.shape, tensor.stride(), expected, strict=True)
    )


def _strides(op: OpInfo, sample: SampleInput) -> _Outcome:
    results = _apply(op.op, sample)
    return _Outcome(facts=[(_layout(r), r.dtype) for r in results])


def _aliasing(op: OpInfo, sample: SampleInput) -> _Outcome:
    inputs = _arguments(sample)
    facts = []
    for result in _apply(op.op, sample):
        same = [i for i, x in enumerate(inputs) if x is result]
        shared = [
            i
            for i, x in enumerate(inputs)
            if x.numel()
            and result.numel()
            and x.untyped_storage()._cdata == result.untyped_storage()._cdata
        ]
        facts.append((same, shared, result._is_view()))
    return _Outcome(facts=facts)


def _laid_out(op: OpInfo, sample: SampleInput) -> _Outcome:
    results = _apply(op.op, sample)
    return _Outcome(results, [_layout(r) for r in results])


def _in_place(op: OpInfo, sample: SampleInput) -> _Outcome:
    self = sample.input.clone()
    result = op.inplace_variant(self, *sample.args, **sample.kwargs)
    if self.requires_grad and sample.input.is_leaf:
        grads = op_samples.gradients([self], [sample.input])
        return _Outcome([self, *grads], result is self)
    return _Outcome([self], result is self)


def _double_backward(op: OpInfo, sample: SampleInput) -> _Outcome:
    outputs = [o for o in _apply(op.op, sample) if o.requires_grad]
    inputs = [i for i in _arguments(sample) if i.requires_grad]
    if not outputs or not inputs:
        return _Outcome()
    first = torch.autograd.grad(
        outputs, inputs, [torch.ones_like(o) for o in outputs], create_graph=True, allow_unused=True
    )
    given = [g for g in first if g is not None and g.requires_grad]
    return _Outcome(op_samples.gradients(given, inputs) if given else [])


def _mapped(sample: SampleInput, function: Callable[[object], object]) -> SampleInput:
    inputs, args, kwargs = (
        tree_map(function, part) for part in (sample.input, sample.args, sample.kwargs)
    )
    return SampleInput(inputs, args=args, kwargs=kwargs)


def _forward_mode(op: OpInfo, sample: SampleInput) -> _Outcome:
    def dual(x: object) -> object:
        if isinstance(x, torch.Tensor) and x.requires_grad:
            return forward_ad.make_dual(x.detach(), torch.ones_like(x))
        return x

    with forward_ad.dual_level():
        results = [forward_ad.unpack_dual(r) for r in _apply(op.op, _mapped(sample, dual))]
        return _Outcome([r.tangent.detach() for r in results if r.tangent is not None])


def _vmap(op: OpInfo, sample: SampleInput) -> _Outcome:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_apply(op.op, _mapped(sample, lambda y: x if y is sample.input else y)))

    if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
        return _Outcome()
    with torch.no_grad():
        batch = torch.stack([sample.input.detach()] * 2)
        results = list(torch.func.vmap(call, randomness="same")(batch))
        return _Outcome(results, chosen_from=batch)


def _of_constants(op: OpInfo, sample: SampleInput) -> _Outcome:
    """On ones, which are constants of the program: the compiler computes it itself."""

    def constant(x: object) -> object:
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.layout == torch.strided:
            return torch.ones(x.shape, dtype=x.dtype, device=x.device)
        return x

    sample = _mapped(sample, constant)
    return _Outcome(_apply(op.op, sample), chosen_from=sample.input)


def _outs(results: list[torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    outs = [change(r) for r in results]
    return outs[0] if len(outs) == 1 else tuple(outs)


_OUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "out": lambda r: torch.zeros_like(r),
    "out of another shape": lambda r: torch.ones((*r.shape, 2), dtype=r.dtype, device=r.device),
    "out of strides": lambda r: noncontiguous_like(torch.zeros_like(r)),
    "out of integers": lambda r: torch.zeros_like(r, dtype=torch.int64),
    "out of float64": lambda r: torch.zeros_like(r, dtype=torch.float64),
}


def _out(
    op: OpInfo, sample: SampleInput, change: Callable[[torch.Tensor], torch.Tensor]
) -> _Outcome:
    with torch.no_grad():
        results = _apply(op.op, sample)
        outs = _outs(results, change)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            op.op(sample.input, *sample.args, **sample.kwargs, out=outs)
    resized = sum(
        "An output with one or more elements was resized" in str(w.message) for w in caught
    )
    written = op_samples.tensors(outs)
    return _Outcome(written, [resized, *((o.dtype, o.shape) for o in written)])


def _out_that_is_read(op: OpInfo, sample: SampleInput, is_part: bool) -> _Outcome:
    """Whether the first input that fits may be the out tensor, or such that they share a part.

    What the CPU then reads may be what it has written: values are not compared."""
    sample = copy.deepcopy(sample)
    with torch.no_grad():
        results = _apply(op.op, sample)
        fitting = [
            x
            for x in _arguments(sample)
            if _lies_in_rows(x) and x.dtype == results[0].dtype and x.numel()
        ]
        if not is_part:
            fitting = [x for x in fitting if x.shape == results[0].shape]
        if not fitting or not results[0].numel():
            return _Outcome()
        old = fitting[0]
        out = old.detach()
        if is_part:
            count = results[0].numel()
            memory = torch.zeros(max(count, old.numel()) + 1, dtype=old.dtype, device=old.device)
            memory[: old.numel()] = out.view(-1)
            beside = memory[: old.numel()].view(old.shape)
            sample = _mapped(sample, lambda x: beside if x is old else x)
            out = memory[1 : count + 1].view(results[0].shape)
        outs = [out, *(torch.empty_like(r) for r in results[1:])]
        op.op(
            sample.input,
            *sample.args,
            **sample.kwargs,
            out=outs[0] if len(outs) == 1 else tuple(outs),
        )
    return _Outcome()


def _in_place_repeated(op: OpInfo, sample: SampleInput) -> _Outcome:
    """Whether elements that share memory are written; what they become is not defined."""
    x = sample.input
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or sample.broadcasts_input:
        return _Outcome()
    if x.dim() == 0 or x.shape[0] < 2:
        return _Outcome()
    with torch.no_grad():
        op.inplace_variant(x[:1].clone().expand(x.shape), *sample.args, **sample.kwargs)
    return _Outcome()


VARIANTS = (
    *("strides", "aliasing", "noncontiguous", "expanded", "in place", "in place repeated"),
    *("double backward", "forward mode", "vmap", "constants", *_OUTS, "out that is read"),
    *("out that is read in part", "error"),
)


def _cases(op: OpInfo, variant: str) -> Callable[[SampleInput], _Outcome] | None:
    """How the variant is called, if the entry has it."""
    if variant == "error":
        return lambda sample: _Outcome(_apply(op.op, sample))
    if variant == "strides":
        return lambda sample: _strides(op, sample)
    if variant == "aliasing":
        return lambda sample: _aliasing(op, sample)
    if variant in ("noncontiguous", "expanded"):
        return lambda sample: _laid_out(op, sample)
    if variant == "in place" and op.inplace_variant is not None:
        return lambda sample: _Outcome() if sample.broadcasts_input else _in_place(op, sample)
    if variant == "in place repeated" and op.inplace_variant is not None:
        return lambda sample: _in_place_repeated(op, sample)
    if variant in ("out that is read", "out that is read in part") and op.supports_out:
        return lambda sample: _out_that_is_read(op, sample, variant.endswith("part"))
    if variant == "double backward" and op.supports_gradgrad:
        return lambda sample: _double_backward(op, sample)
    if variant == "forward mode" and op.supports_forward_ad:
        return lambda sample: _forward_mode(op, sample)
    if variant == "constants":
        return lambda sample: _of_constants(op, sample)
    if variant == "vmap":
        return lambda sample: _vmap(op, sample)
    if variant in _OUTS and op.supports_out:
        return lambda sample: _out(op, sample, _OUTS[variant])
    return None


class _Moved:
    """Samples on the device. Variants share their tensors, so that XLA computes once what several
    of them have in common: most of the time goes to compilation."""

    def __init__(self) -> None:
        self._moved: dict[int, SampleInput] = {}

    def of(self, sample: SampleInput) -> SampleInput:
        """The same one for a sample that the caller still holds."""
        if id(sample) not in self._moved:
            self._moved[id(sample)] = op_samples.moved_as_it_lies(sample)
        return self._moved[id(sample)]


def _attempt(
    call: Callable[[SampleInput], _Outcome], sample: SampleInput, moved: _Moved | None = None
) -> _Outcome:
    """The call's outcome; of a sample that is moved first, on the device."""
    try:
        outcome = call(moved.of(sample) if moved else sample)
        if moved:
            # Reading a view alone would compile a program for it.
            outcome.tensors = [tensor.detach().clone() for tensor in outcome.tensors]
    except Exception as error:
        return _Outcome(error=error)
    if outcome.chosen_from is None:
        outcome.chosen_from = sample.input
    return outcome


def _differ(expected: _Outcome, actual: _Outcome) -> str:
    """What differs without looking at values."""
    if (expected.error is None) != (actual.error is None):
        return f"expected {_tell(expected)}, got {_tell(actual)}"
    if expected.error is not None and actual.error is not None:
        same = isinstance(actual.error, type(expected.error)) or isinstance(
            expected.error, type(actual.error)
        )
        return "" if same else f"expected {_tell(expected)}, got {_tell(actual)}"
    if expected.facts != actual.facts:
        return f"expected {expected.facts}, got {actual.facts}"
    return ""


def _tell(outcome: _Outcome) -> str:
    return "a result" if outcome.error is None else op_samples.describe(outcome.error)


def _expanded(sample: SampleInput) -> SampleInput | None:
    """The sample with its first dimension repeated without memory, if it has one."""
    x = sample.input
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
        return None
    if x.dim() == 0 or x.shape[0] < 2:
        return None
    first = x.detach()[:1].expand(x.shape)
    return SampleInput(
        first.requires_grad_(x.requires_grad), args=sample.args, kwargs=sample.kwargs
    )


def _samples_for(op: OpInfo, variant: str, found: list[SampleInput]) -> list[SampleInput]:
    """What the variant is called on: the samples that were found, or others."""
    if variant == "error":
        return list(_error_samples(op))
    if variant == "noncontiguous":
        return [
            sample.noncontiguous()
            for sample in found
            if all(x.layout == torch.strided for x in _arguments(sample))
        ]
    if variant == "expanded":
        return [sample for sample in map(_expanded, found) if sample is not None]
    return found


def _error_samples(op: OpInfo) -> Iterator[SampleInput]:
    try:
        yield from (e.sample_input for e in op.error_inputs("cpu") if e.sample_input is not None)
    except Exception:  # some lists are for other devices
        return


_OUTCOMES_PER_PROGRAM = 48


@dataclasses.dataclass
class _Recorded:
    """A call, and what came of it on the CPU and on the device."""

    variant: str
    index: int
    call: Callable[[SampleInput], _Outcome]
    sample: SampleInput
    expected: _Outcome
    actual: _Outcome


def check(
    op: OpInfo, dtype: torch.dtype, variants: tuple[str, ...], most: int | None = 4
) -> list[Problem]:
    """The problems of the entry's variants, for up to `most` samples each; of variants that have no
    values, for all of them."""
    found: list[Problem] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorded = _record(op, dtype, variants, most, found)
        while batch := list(itertools.islice(recorded, _OUTCOMES_PER_PROGRAM)):
            _compare(op, dtype, batch, found)
    return found


def _cases_and_samples(
    op: OpInfo, dtype: torch.dtype, variants: tuple[str, ...], most: int | None
) -> dict[str, tuple[Callable[[SampleInput], _Outcome], list[SampleInput]]]:
    """How each variant that the entry has is called, and on what."""
    with_grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    some = list(op_samples.samples(op, dtype, with_grad, most))
    cases = {}
    for variant in variants:
        call = _cases(op, variant)
        if call is None or (variant in ("double backward", "forward mode") and not with_grad):
            continue
        found = some
        if variant in ("strides", "aliasing") and most is not None:
            # Without values, so that all samples cost little.
            found = list(op_samples.samples(op, dtype, with_grad, None))
        cases[variant] = call, _samples_for(op, variant, found)
    return cases


def _record(
    op: OpInfo,
    dtype: torch.dtype,
    variants: tuple[str, ...],
    most: int | None,
    found: list[Problem],
) -> Iterator[_Recorded]:
    """What is to be compared by value; what differs otherwise goes to `found`."""
    cases = _cases_and_samples(op, dtype, variants, most)
    for index in range(max((len(samples) for _, samples in cases.values()), default=0)):
        moved = _Moved()
        for variant, (call, samples) in cases.items():
            if index >= len(samples):
                continue
            expected = _attempt(call, samples[index])
            if variant == "error" and expected.error is None:
                continue
            # Data that repeats itself may be what the CPU refuses, and only there.
            if variant in ("expanded", "constants") and expected.error is not None:
                continue
            actual = _attempt(call, samples[index], moved)
            problem = _differ(expected, actual)
            if problem:
                found.append(Problem(variant, str(index), problem))
            else:
                yield _Recorded(variant, index, call, samples[index], expected, actual)


def _compare(
    op: OpInfo, dtype: torch.dtype, recorded: list[_Recorded], found: list[Problem]
) -> None:
    with_values = op.name not in op_samples.ARBITRARY_VALUES
    try:
        torch_xla.sync()
    except Exception as error:
        found.append(Problem("all", "", op_samples.describe(error)))
        return
    for one in recorded:
        try:
            detail = _difference(op, dtype, one, with_values)
        except Exception as error:
            detail = op_samples.describe(error)
        if detail:
            found.append(Problem(one.variant, str(one.index), detail))


def _difference(op: OpInfo, dtype: torch.dtype, one: _Recorded, with_values: bool) -> str:
    """How the values differ beyond what is right as well, or nothing."""
    tolerance = op_samples.Tolerance(dtype, op, variant=one.variant)
    results = one.expected.tensors, one.actual.tensors
    problem = op_samples.compare(*results, with_values, tolerance)
    x = one.expected.chosen_from
    if problem and op.name in op_samples.POSITIONS and isinstance(x, torch.Tensor):
        problem = op_samples.compare_chosen(x, *results, tolerance)
    if problem and dtype in op_samples.HALVES:
        exact = _attempt(one.call, op_samples.widened(one.sample, dtype)).tensors
        if op_samples.as_near(exact, *results, tolerance):
            return ""
    return problem
