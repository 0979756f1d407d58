"""What replicas may exchange: a tensor that is elsewhere is an error at the call, since it would be
exchanged at another time than those of the program, or as another replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._replicas import world


def check_tensors(what: str, argument: str, given: Any) -> None:
    """Raises unless all are tensors on this replica's device. A replica that is alone exchanges
    nothing, and takes any.

    Args:
        what: the function's name.
        argument: its argument's name.
        given: a tensor or a sequence of tensors.

    Raises:
        TypeError: some of them is no tensor.
        ValueError: a tensor is on another device.
    """
    if world.world_size() == 1:
        return
    own = torch.device("xla", _XLAC._current_device())
    is_list = not isinstance(given, Tensor) and isinstance(given, Sequence)
    for place, tensor in enumerate(given if is_list else [given]):
        name = f"{argument}[{place}]" if is_list else argument
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{what}: {name} must be a tensor on {own}, got {type(tensor).__name__}; "
                "xm.mesh_reduce exchanges objects"
            )
        if tensor.device != own:
            raise ValueError(
                f"{what}: {name} must be on {own}, the device of this replica, got a tensor on "
                f"{tensor.device}; move it by .to('{own}'), or exchange it as an object by "
                "xm.mesh_reduce"
            )


def check_outputs(what: str, argument: str, given: Any, results: Any) -> None:
    """Raises unless `given` are tensors as the results that are to be written into them.

    Raises:
        TypeError, ValueError: as `check_tensors`; a tensor has another dtype or size; there are
            more or fewer than results.
    """
    if world.world_size() == 1:
        return
    check_tensors(what, argument, given)
    outputs, results = ([x] if isinstance(x, Tensor) else list(x) for x in (given, results))
    if len(outputs) != len(results):
        raise ValueError(f"{what}: {argument} must have {len(results)} tensors, got {len(outputs)}")
    for output, result in zip(outputs, results, strict=True):
        if (output.dtype, output.shape) != (result.dtype, result.shape):
            raise ValueError(
                f"{what}: {argument} must be {result.dtype} of size {list(result.shape)}, got "
                f"{output.dtype} of size {list(output.shape)}"
            )
