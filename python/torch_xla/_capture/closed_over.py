"""What a captured function takes from elsewhere: tensors that require gradients are found while the
function is called, and others put in their place, so that gradients reach them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from torch_xla import _XLAC

Tensors = list[torch.Tensor]
_HASH: Any = torch.Tensor.__hash__


def replaced(value: Any, replace: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """An operation's arguments with others in the place of their tensors."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return replace(value)
    if kind is tuple or kind is list:
        return kind(replaced(item, replace) for item in value)
    if kind is dict:
        return {key: replaced(item, replace) for key, item in value.items()}
    return value


def call_replaced(
    func: Any,
    args: Any,
    kwargs: dict[str, Any] | None,
    replace: Callable[[torch.Tensor], torch.Tensor],
) -> Any:
    if func is _HASH:  # a key of a dictionary is the tensor itself
        return func(*args)
    return func(*replaced(args, replace), **replaced(kwargs or {}, replace))


class ClosedOver(TorchFunctionMode):
    """While it is active, a stand-in takes the place of each xla tensor that requires gradients and
    was made before.

    Args:
        name: of what captures the function, for messages.
        stand_in: makes a tensor of the type of another, without gradients.
        is_kept: the function is captured once for many calls. Tensors that were computed are
            constants then, since nobody would compute them again.
        known: the tensors that an earlier capture of the function found. No others are looked for.
    """

    def __init__(
        self,
        name: str,
        stand_in: Callable[[torch.Tensor], torch.Tensor],
        is_kept: bool = False,
        known: Sequence[torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.tensors: Tensors = []  # the user's, by first use
        self.stand_ins: Tensors = []
        self.has_gradient: list[bool] = []
        self.is_kept = is_kept
        self.name = name
        self._stand_in = stand_in
        self._first_node = torch._C._autograd._get_sequence_nr()
        self._place_of: dict[int, int] = {}
        # Tensors that the function made; they live on, so that no other gets their address.
        self._made: dict[int, torch.Tensor] = {}
        # Each with what stands for it.
        self._constants: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._is_complete = False
        for tensor in known or ():
            self.add(tensor)
        self._is_complete = known is not None

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        result = call_replaced(func, args, kwargs, self.replace)
        self._remember(result)
        return result

    def _remember(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._made[id(value)] = value
        elif isinstance(value, (tuple, list)):
            for item in value:
                self._remember(item)

    def replace(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the function is to compute with in the place of `tensor`."""
        if id(tensor) in self._made:
            return tensor
        place = self._place_of.get(id(tensor))
        if place is not None:
            return self.stand_ins[place]
        if self._is_complete and not self.is_kept:
            return tensor
        with torch._C.DisableTorchFunction():
            if not tensor.requires_grad or not _XLAC._is_xla_tensor(tensor):
                return tensor
            node = tensor.grad_fn
        if node is not None and node._sequence_nr() >= self._first_node:
            return tensor
        if node is not None and self.is_kept:
            return self._constant(tensor)
        return tensor if self._is_complete else self.add(tensor)

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """The stand-in of a tensor that was made before and is new here."""
        stand_in = self._stand_in(tensor).requires_grad_()
        self._place_of[id(tensor)] = len(self.tensors)
        self.tensors.append(tensor)
        self.stand_ins.append(stand_in)
        self._made[id(stand_in)] = stand_in
        return stand_in

    def _constant(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self._constants:
            if torch.is_grad_enabled() and not self._is_complete:
                warn_of_lost_gradients(self.name, tensor)
            self._constants[id(tensor)] = (tensor, tensor.detach())
        return self._constants[id(tensor)][1]

    def leaks(self, results: Tensors, inputs: Tensors) -> Tensors:
        """The tensors of elsewhere that `results` depend on past all stand-ins: those that were
        handed to an autograd function of the user's directly."""
        known = {id(x) for x in [*inputs, *self.stand_ins]} | self._made.keys()
        return [leaf for leaf in leaves_behind(results) if id(leaf) not in known]

    def note_gradients(self, results: Tensors) -> None:
        """Finds out which tensors of elsewhere have gradients, if the results do."""
        reached = {id(leaf) for leaf in leaves_behind(results)}
        self.has_gradient = [
            id(stand_in) in reached or id(tensor) in reached
            for tensor, stand_in in zip(self.tensors, self.stand_ins, strict=True)
        ]

    def refuse_writes(self) -> None:
        for stand_in in self.stand_ins:
            if stand_in._version > 0:
                raise RuntimeError(
                    f"{self.name}: the function writes to a {dtype_and_shape(stand_in)} that it "
                    "takes from elsewhere; make it an argument and return the new value"
                )

    def forget(self) -> None:
        """The function has returned: nothing that it made is needed any more."""
        self.stand_ins = []
        self._made, self._constants, self._place_of = {}, {}, {}


def leaves_behind(results: Sequence[torch.Tensor]) -> Tensors:
    """The leaves of autograd's graph that `results` depend on."""
    leaves = {id(result): result for result in results if result.requires_grad and result.is_leaf}
    pending = [result.grad_fn for result in results if result.grad_fn is not None]
    seen = set(pending)
    while pending:
        node = pending.pop()
        # Of the nodes that add up a leaf's gradient.
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves[id(leaf)] = leaf
        new = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= new
        pending.extend(new)
    return list(leaves.values())


def current() -> ClosedOver | None:
    """The innermost that is active."""
    for mode in reversed(_get_current_function_mode_stack()):
        if isinstance(mode, ClosedOver):
            return mode
    return None


def inside(tensors: Any) -> Tensors:
    """`tensors` as the function that is being captured is to see them. For what goes to an autograd
    function, which no mode is asked about."""
    closed = current()
    return list(tensors) if closed is None else [closed.replace(tensor) for tensor in tensors]


def warn_of_lost_gradients(name: str, tensor: torch.Tensor) -> None:
    warnings.warn(
        f"{name}: the function takes a {dtype_and_shape(tensor)} that requires gradients from "
        "elsewhere, and none will flow to it; make it an argument, or use torch.no_grad() or "
        f"detach() (at {_XLAC._user_line()})",
        stacklevel=2,
    )


def dtype_and_shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
