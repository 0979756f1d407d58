"""Functionals and modules of the databases compiled by Dynamo, `dynamic=None`, and called with
three batch sizes, of which it makes symbols: values, gradients included, are the CPU's."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import modules
import op_samples
import torch
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

__all__ = ["check_functional", "check_module", "functionals"]

# How often a sample's batch is taken.
_TIMES = (2, 3, 5)
# Relative and absolute: of sums over all of a batch, which may cancel.
_ROUNDED = (1e-4, 1e-4)


def functionals() -> list[OpInfo]:
    """The entries of `torch.nn.functional`, by name."""
    return [op for op in op_samples.entries() if op.name.startswith("nn.functional.")]


def _batches(values: Any) -> Iterator[tuple[int, Any]]:
    """The nest with as many times the first tensor's batch, and so of all tensors that have it; and
    how large that is."""
    tensors = [t for t in op_samples.tensors(values) if t.dim() > 0]
    size = tensors[0].shape[0] if tensors else 0

    def repeat(x: object, times: int) -> object:
        if not isinstance(x, torch.Tensor) or x.dim() == 0 or x.shape[0] != size:
            return x
        return torch.cat([x.detach()] * times).requires_grad_(x.requires_grad)

    for times in _TIMES if size else ():
        yield times * size, tree_map(lambda x, times=times: repeat(x, times), values)


def _compiled(function: Callable[..., Any]) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="openxla", dynamic=None)


def _functional_problems(op: OpInfo, dtype: torch.dtype, most: int | None) -> Iterator[str]:
    with_grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    tolerance = op_samples.Tolerance(dtype, op)

    def results(function: Callable[..., Any], sample: SampleInput) -> list[torch.Tensor]:
        outputs = op_samples.run(function, sample)
        inputs = op_samples.tensors((sample.input, sample.args, sample.kwargs))
        return outputs + op_samples.gradients(outputs, inputs)

    for index, sample in enumerate(op_samples.samples(op, dtype, with_grad, most)):
        compiled = _compiled(lambda *args, **kwargs: op.op(*args, **kwargs))
        for size, parts in _batches((sample.input, sample.args, sample.kwargs)):
            batch = SampleInput(parts[0], args=parts[1], kwargs=parts[2])
            try:
                expected = results(op.op, batch)
            except Exception:  # the CPU refuses it: nothing to compare with
                continue
            what = f"sample {index}, batch of {size}"
            try:
                actual = results(compiled, op_samples.moved(batch))
            except Exception as error:
                yield f"{what}: {op_samples.describe(error)}"
                continue
            if problem := op_samples.difference(op, batch, expected, actual, tolerance):
                yield f"{what}: {problem}"


def check_functional(op: OpInfo, dtype: torch.dtype, most: int | None) -> list[str]:
    """What differs from the CPU, of so many samples."""
    if dtype not in op.supported_dtypes("cpu"):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_functional_problems(op, dtype, most))


def _module_problems(info: ModuleInfo, dtype: torch.dtype, most: int | None) -> Iterator[str]:
    torch.manual_seed(0)
    found = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=True
    )
    for index, given in enumerate([g for g in found if g.forward_input is not None][:most]):
        arguments, forward = given.constructor_input, given.forward_input
        module = info.module_cls(*arguments.args, **arguments.kwargs).to(dtype)
        if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
            module(*forward.args, **forward.kwargs)
        compiled = _compiled(copy.deepcopy(module).to("xla"))
        for size, (args, kwargs) in _batches((forward.args, forward.kwargs)):
            try:
                expected = modules.call(module, FunctionInput(*args, **kwargs))
            except Exception:  # the CPU refuses it: nothing to compare with
                continue
            what = f"input {index}, batch of {size}"
            try:
                there: Any = op_samples.to_device((args, kwargs))
                actual = modules.call(compiled, FunctionInput(*there[0], **there[1]))
            except Exception as error:
                yield f"{what}: {op_samples.describe(error)}"
                continue
            with_values = not modules.draws(module)
            if problem := op_samples.compare(expected, actual, with_values, _ROUNDED):
                yield f"{what}: {problem}"


def check_module(info: ModuleInfo, dtype: torch.dtype, most: int | None) -> list[str]:
    """What differs from the CPU, of so many inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_module_problems(info, dtype, most))
