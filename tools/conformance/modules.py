"""PyTorch's database of modules on the device: forward, backward and state, in training and not."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import op_samples
import torch
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, module_db
from torch.utils._pytree import tree_map

import torch_xla

__all__ = ["call", "check", "draws", "entries"]

# A program of all the inputs of a Transformer takes XLA minutes.
_INPUTS_PER_PROGRAM = 6

# What input, the results on the CPU and on the device, and whether values are compared.
_Recorded = tuple[str, list[torch.Tensor], list[torch.Tensor], bool]


def entries() -> list[ModuleInfo]:
    """The database's entries, by name."""
    return sorted(module_db, key=lambda info: info.name)


def call(module: torch.nn.Module, inputs: FunctionInput) -> list[torch.Tensor]:
    """What a module gives, with the gradients of what it takes and has, and its buffers."""
    torch.manual_seed(0)
    outputs = op_samples.tensors(module(*inputs.args, **inputs.kwargs))
    given = op_samples.tensors((inputs.args, inputs.kwargs))
    grads = op_samples.gradients(outputs, [*given, *module.parameters()])
    return [*outputs, *grads, *module.buffers()]


def draws(module: torch.nn.Module) -> bool:
    """Whether a part of the module draws at random in training."""
    return any(
        "Dropout" in type(part).__name__
        or type(part).__name__ in ("RReLU", "FractionalMaxPool2d", "FractionalMaxPool3d")
        or getattr(part, "dropout", 0)
        for part in module.modules()
    )


def _formats(info: ModuleInfo, given: FunctionInput) -> list[torch.memory_format | None]:
    """Those in which the inputs can lie; None leaves them as they are."""
    has_images = any(x.dim() == 4 for x in op_samples.tensors((given.args, given.kwargs)))
    return [None, torch.channels_last] if has_images and not info.name.endswith("3d") else [None]


def _laid_out(value: object, memory_format: torch.memory_format | None) -> Any:
    def lay(x: object) -> object:
        if memory_format is None or not isinstance(x, torch.Tensor) or x.dim() != 4:
            return x
        return x.detach().contiguous(memory_format=memory_format).requires_grad_(x.requires_grad)

    return tree_map(lay, value)


def _strides(tensors: list[torch.Tensor]) -> list[list[int]]:
    return [
        [step for size, step in zip(t.shape, t.stride(), strict=True) if size > 1] for t in tensors
    ]


def _problems(info: ModuleInfo, dtype: torch.dtype, training: bool) -> Iterator[str]:
    torch.manual_seed(0)
    recorded: list[_Recorded] = []
    for index, given in enumerate(
        info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
    ):
        if given.forward_input is None:
            continue
        for memory_format in _formats(info, given.forward_input):
            arguments = given.constructor_input
            module = info.module_cls(*arguments.args, **arguments.kwargs).to(dtype).train(training)
            if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
                module(*given.forward_input.args, **given.forward_input.kwargs)
            if memory_format is not None:
                module = module.to(memory_format=memory_format)
            there = copy.deepcopy(module).to("xla")
            with_values = not (training and draws(module))
            args = _laid_out((given.forward_input.args, given.forward_input.kwargs), memory_format)
            moved: Any = op_samples.to_device(args)
            try:
                expected = call(module, FunctionInput(*args[0], **args[1]))
            except Exception:  # the CPU refuses it: nothing to compare with
                continue
            what = f"input {index} {memory_format or ''}"
            try:
                actual = call(there, FunctionInput(*moved[0], **moved[1]))
                there.load_state_dict(copy.deepcopy(there.state_dict()))
            except Exception as error:
                yield f"{what}: {op_samples.describe(error)}"
                continue
            if _strides(actual[:1]) != _strides(expected[:1]):
                yield f"{what}: strides {actual[0].stride()}, expected {expected[0].stride()}"
            recorded.append((what, expected, actual, with_values))
            if len(recorded) == _INPUTS_PER_PROGRAM:
                yield from _compared(recorded)
                recorded = []
    yield from _compared(recorded)


def _compared(recorded: list[_Recorded]) -> Iterator[str]:
    torch_xla.sync()
    for what, expected, actual, with_values in recorded:
        problem = op_samples.compare(expected, actual, with_values)
        if problem:
            yield f"{what}: {problem}"


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
