"""Moves of modules to and from xla devices that keep each parameter the object it was.

`Module.to` changes a parameter by `parameter.data = moved`, which PyTorch allows only between
devices whose tensors are of one kind. For xla it would make new parameters instead: tied weights
would come apart, without a word, and an optimizer built before the move would go on with the old
ones. Here the parameter takes over the moved tensor's content, much as it does for all moves with
`torch.__future__.set_swap_module_params_on_conversion`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch.nn import Module, Parameter

from torch_xla import _XLAC
from torch_xla._wrapping import to_wrap

_Convert = Callable[[torch.Tensor], torch.Tensor]
_Apply = Callable[[Module, _Convert, bool], Module]


class _Move:
    """What is passed down the tree of modules in the place of the conversion `fn`."""

    def __init__(self, fn: _Convert) -> None:
        self._fn = fn
        # Parameters that could not be changed in place: PyTorch makes new ones of these. Kept, so
        # that their ids stay theirs.
        self.replaced: dict[int, Parameter] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        moved = self._fn(tensor)
        if not isinstance(tensor, Parameter):
            return moved
        # Tensors of other kinds that are on an xla device, such as FakeTensors, are not ours.
        if _XLAC._is_xla_tensor(moved) == _XLAC._is_xla_tensor(tensor):
            return moved
        if _take_over(tensor, moved, self._fn):
            return tensor
        self.replaced[id(tensor)] = tensor
        return moved


def _take_over(parameter: Parameter, moved: torch.Tensor, fn: _Convert) -> bool:
    """Make `parameter` hold `moved`, and move its gradient. False if something forbids it."""
    if hasattr(parameter, "global_tensor"):
        return False  # an XLAShardedTensor, which speaks of another tensor's content
    from torch_xla._spmd import sharding  # slow to import

    replacement = Parameter(moved, parameter.requires_grad)
    gradient, way = parameter.grad, sharding.way_of(parameter)
    # A graph that was recorded before the move goes on holding the old content.
    if parameter.requires_grad and parameter._use_count() > 1:  # type: ignore[attr-defined]
        torch.autograd.graph.get_gradient_edge(parameter).node.register_prehook(_refuse_gradient)
    try:
        torch._C._swap_tensor_impl(parameter, replacement)
    except RuntimeError:
        return False
    # Hooks are known to the content as well; the user hung them on to the parameter.
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(parameter, hooks, None):
            setattr(parameter, hooks, getattr(parameter, hooks))
    if gradient is not None:
        with torch.no_grad():
            parameter.grad = fn(gradient).requires_grad_(gradient.requires_grad)
    sharding.keep_way(parameter, way)
    return True


def move(tensor: torch.Tensor, fn: _Convert) -> None:
    """Make a parameter or a buffer hold what `fn` makes of it, on a device of the other kind."""
    with torch.no_grad():
        moved = fn(tensor)
    if not isinstance(tensor, Parameter):
        torch._C._swap_tensor_impl(tensor, moved)
    elif not _take_over(tensor, moved, fn):
        raise RuntimeError("torch holds the content of a parameter that was to be moved")


def _refuse_gradient(gradients: object) -> None:
    raise RuntimeError(
        "backward through a parameter that was moved to another device after the forward pass; "
        "run the forward pass again"
    )


def _tie_again(
    module: Module, before: dict[str, Parameter], replaced: dict[int, Parameter]
) -> None:
    """Give tied parameters that had to be replaced one replacement, the first."""
    replacements: dict[int, Parameter | None] = {}
    for name, old in before.items():
        if id(old) in replaced:
            path, _, key = name.rpartition(".")
            parameters = module.get_submodule(path)._parameters
            parameters[key] = replacements.setdefault(id(old), parameters[key])
    warnings.warn(
        f"{len(replaced)} parameters could not be changed in place (torch or an XLAShardedTensor "
        "holds their content), so that moving the module made new ones; build optimizers after the "
        "move, not before",
        stacklevel=4,
    )


def install() -> None:
    """Wrap `Module._apply`, which all of a module's moves and conversions go through."""
    original: _Apply = to_wrap(Module, "_apply", Module.to)

    @functools.wraps(original)
    def _apply(self: Module, fn: _Convert, recurse: bool = True) -> Module:
        is_inner = isinstance(fn, _Move)
        if is_inner or _is_left_to_torch():
            return original(self, fn, recurse)
        move = _Move(fn)
        before = dict(self.named_parameters(recurse=recurse, remove_duplicate=False))
        result = original(self, move, recurse)
        if move.replaced:
            _tie_again(self, before, move.replaced)
        return result

    Module._apply = _apply  # type: ignore[method-assign]


def _is_left_to_torch() -> bool:
    """The user chose another way of changing parameters."""
    future = torch.__future__
    return (
        future.get_swap_module_params_on_conversion()
        or future.get_overwrite_module_params_on_conversion()
    )
