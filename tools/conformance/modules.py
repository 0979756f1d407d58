"""PyTorch's database of modules on the device: forward, backward and state, in training and not."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import op_samples
import torch
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, module_db

import torch_xla

__all__ = ["check", "entries"]


def entries() -> list[ModuleInfo]:
    """The database's entries, by name."""
    return sorted(module_db, key=lambda info: info.name)


def _call(module: torch.nn.Module, inputs: FunctionInput) -> list[torch.Tensor]:
    torch.manual_seed(0)
    outputs = op_samples.tensors(module(*inputs.args, **inputs.kwargs))
    given = op_samples.tensors((inputs.args, inputs.kwargs))
    grads = op_samples.gradients(outputs, [*given, *module.parameters()])
    return [*outputs, *grads, *module.buffers()]


def _draws(module: torch.nn.Module) -> bool:
    """Whether a part of the module draws at random in training."""
    return any(
        "Dropout" in type(part).__name__
        or type(part).__name__ in ("RReLU", "FractionalMaxPool2d", "FractionalMaxPool3d")
        or getattr(part, "dropout", 0)
        for part in module.modules()
    )


def _problems(info: ModuleInfo, dtype: torch.dtype, training: bool) -> Iterator[str]:
    torch.manual_seed(0)
    recorded = []
    for index, given in enumerate(
        info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
    ):
        if given.forward_input is None:
            continue
        arguments = given.constructor_input
        module = info.module_cls(*arguments.args, **arguments.kwargs).to(dtype).train(training)
        there = copy.deepcopy(module).to("xla")
        with_values = not (training and _draws(module))
        try:
            expected = _call(module, given.forward_input)
        except Exception:  # the CPU refuses it: nothing to compare with
            continue
        moved: Any = op_samples.to_device((given.forward_input.args, given.forward_input.kwargs))
        try:
            actual = _call(there, FunctionInput(*moved[0], **moved[1]))
            there.load_state_dict(copy.deepcopy(there.state_dict()))
        except Exception as error:
            yield f"input {index}: {op_samples.describe(error)}"
            continue
        recorded.append((index, expected, actual, with_values))
    torch_xla.sync()
    for index, expected, actual, with_values in recorded:
        problem = op_samples.compare(expected, actual, with_values)
        if problem:
            yield f"input {index}: {problem}"


def check(info: ModuleInfo, dtype: torch.dtype) -> list[str]:
    """What differs from the CPU."""
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in (True, False) if info.train_and_eval_differ else (True,):
            try:
                problems += list(_problems(info, dtype, training))
            except Exception as error:
                problems.append(op_samples.describe(error))
    return problems
