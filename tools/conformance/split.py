"""Samples of the op database on a mesh of all devices, each tensor split along each of its
dimensions in turn: values, gradients included, are those of the same call on whole tensors."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence

import op_samples
import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

__all__ = ["Case", "Problem", "cases", "check"]

# A program of all cases of some entries takes XLA minutes.
_CASES_PER_PROGRAM = 16

# Entries whose results hold whatever was in the memory.
_UNINITIALISED = ("empty", "new_empty")


@dataclasses.dataclass(frozen=True)
class Case:
    """Which tensor of which sample is split along which dimension; no tensor: all are whole."""

    sample: int
    tensor: int = -1
    dim: int = -1

    def __str__(self) -> str:
        if self.tensor < 0:
            return f"sample {self.sample} whole"
        return f"sample {self.sample} tensor {self.tensor} dim {self.dim}"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A case that gave other values, raised, or ended the process."""

    case: str
    detail: str


def _inputs(sample: SampleInput) -> list[torch.Tensor]:
    return op_samples.tensors((sample.input, sample.args, sample.kwargs))


def _samples(op: OpInfo, dtype: torch.dtype, most: int | None) -> list[SampleInput]:
    if dtype not in op.supported_dtypes("cpu"):
        return []
    with_grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    return list(op_samples.samples(op, dtype, with_grad, most))


def cases(op: OpInfo, dtype: torch.dtype, most: int | None) -> list[Case]:
    """Of each sample: whole, then each tensor along each dimension of two elements or more."""
    found = []
    for index, sample in enumerate(_samples(op, dtype, most)):
        found.append(Case(index))
        for position, tensor in enumerate(_inputs(sample)):
            if tensor.layout == torch.strided and tensor.numel() > 1:
                sizes = enumerate(tensor.shape)
                found += [Case(index, position, dim) for dim, size in sizes if size > 1]
    return found


def _spec(rank: int, dim: int, axes: int) -> tuple[int | None, ...]:
    """The first axis splits the dimension, further ones those behind it, around the end."""
    places = {(dim + axis) % rank: axis for axis in reversed(range(axes))}
    return tuple(places.get(d) for d in range(rank))


def _split(sample: SampleInput, case: Case, sizes: Sequence[int]) -> SampleInput:
    """The sample on the device, one of its tensors split. What has no equal parts is split within
    the program: between programs it lies whole."""
    there = op_samples.moved(sample)
    if case.tensor < 0:
        return there
    mesh = xs.Mesh(range(math.prod(sizes)), sizes)
    chosen = _inputs(there)[case.tensor]
    spec = _spec(chosen.dim(), case.dim, len(sizes))
    split = chosen.detach()
    if any(a is not None and n % sizes[a] for a, n in zip(spec, split.shape, strict=True)):
        split = split.clone()
    split = xs.mark_sharding(split, mesh, spec).global_tensor.requires_grad_(chosen.requires_grad)

    def exchange(x: object) -> object:
        return split if x is chosen else x

    parts = (there.input, there.args, there.kwargs)
    inputs, args, kwargs = (tree_map(exchange, part) for part in parts)
    return SampleInput(inputs, args=args, kwargs=kwargs, broadcasts_input=there.broadcasts_input)


def _results(op: OpInfo, sample: SampleInput) -> list[torch.Tensor]:
    torch_xla.manual_seed(0)
    outputs = op_samples.run(op.op, sample)
    return outputs + op_samples.gradients(outputs, _inputs(sample))


def _compute(
    op: OpInfo, found: list[SampleInput], chosen: Sequence[Case], sizes: Sequence[int]
) -> dict[Case, list[torch.Tensor] | str]:
    """What each case gives, or the error: of a program that fails each case is tried by itself."""
    results: dict[Case, list[torch.Tensor] | str] = {}
    for start in range(0, len(chosen), _CASES_PER_PROGRAM):
        batch = chosen[start : start + _CASES_PER_PROGRAM]
        try:
            given = {case: _results(op, _split(found[case.sample], case, sizes)) for case in batch}
            torch_xla.sync()
            results.update({case: [t.cpu() for t in out] for case, out in given.items()})
        except Exception as error:
            if len(batch) == 1:
                results[batch[0]] = op_samples.describe(error)
                continue
            for case in batch:
                results.update(_compute(op, found, [case], sizes))
    return results


def check(
    op: OpInfo,
    dtype: torch.dtype,
    most: int | None,
    only: Sequence[Case] = (),
    sizes: Sequence[int] = (),
) -> list[Problem]:
    """What is wrong with the entry's cases, or with those that are named, on a mesh of these sizes,
    else on all devices in a row. A result is right that is as near to the CPU's as the entry's
    tolerance says, or to that of whole tensors."""
    if not xr.is_spmd():
        xr.use_spmd()
    sizes = sizes or (xr.global_runtime_device_count(),)
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _samples(op, dtype, most)
        results = _compute(op, found, list(only) or cases(op, dtype, most), sizes)
        for case, actual in results.items():
            if case.tensor < 0:
                continue
            whole = results.get(Case(case.sample), "")
            if detail := _difference(op, dtype, found[case.sample], whole, actual):
                problems.append(Problem(str(case), detail))
    return problems


def _difference(
    op: OpInfo,
    dtype: torch.dtype,
    sample: SampleInput,
    whole: list[torch.Tensor] | str,
    actual: list[torch.Tensor] | str,
) -> str:
    if isinstance(actual, str):
        return "" if isinstance(whole, str) and whole else actual
    tolerance = op_samples.Tolerance(dtype, op)
    if not isinstance(whole, str):
        with_values = not op.name.startswith(_UNINITIALISED)
        if not op_samples.compare(whole, actual, with_values, tolerance):
            return ""
    try:
        expected = op_samples.run(op.op, sample)
        expected += op_samples.gradients(expected, _inputs(sample))
    except Exception:  # the CPU refuses the sample: nothing to compare with
        return ""
    return op_samples.difference(op, sample, expected, actual, tolerance)
