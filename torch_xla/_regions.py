"""Functions of tensors that are recorded once and then stand as one node in the graph: what loops,
branches, `torch.compile` and `assume_pure` are made of."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla import _XLAC, _devices

Tensors = Sequence[torch.Tensor]
Function = Callable[..., Sequence[torch.Tensor]]


def device_of(tensors: Tensors) -> int:
    """The index of the first xla tensor's device, or of the current one."""
    for tensor in tensors:
        if tensor.device.type == "xla":
            return tensor.device.index
    return _XLAC._current_device()


def type_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a captured function depends on."""
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


@contextlib.contextmanager
def _normal_tensors() -> Iterator[None]:
    """Inference mode is off inside; gradients stay off if it was on."""
    is_on = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(is_on):
        yield


class Captured:
    """A function captured for the types of `examples`.

    Args:
        function: called once, with stand-ins for `examples`; returns xla tensors.
        examples: xla tensors.
        rng_state: capture with the random keys that an earlier capture had.
    """

    def __init__(
        self, function: Function, examples: Tensors, rng_state: torch.Tensor | None = None
    ) -> None:
        index = device_of(examples)
        generator = _devices.generator_of(index)
        before = generator.get_state()
        self.rng_state = before if rng_state is None else rng_state
        generator.set_state(self.rng_state)
        capture = _XLAC._Capture(index)
        try:
            # Tensors of inference mode do not count the writes to them.
            with _normal_tensors():
                stand_ins = [capture.placeholder(example) for example in examples]
                results = list(function(*stand_ins))
            written = [i for i, stand_in in enumerate(stand_ins) if stand_in._version > 0]
            self.graph = capture.finish(results + [stand_ins[i] for i in written])
        finally:
            capture.close()
            # A capture draws keys, and each use of the region draws its own.
            generator.set_state(before)
        self.num_results = len(results)
        # The arguments that the function wrote; their new values are the last results.
        self.written = written
        self.needs_grad = [result.requires_grad for result in results]
        self.examples_need_grad = [example.requires_grad for example in examples]

    def refuse_writes(self, name: str) -> None:
        if self.written:
            raise RuntimeError(
                f"{name}: the function writes to its argument {self.written[0]}; return the new "
                "value in the place of writing it"
            )


def warn_of_lost_gradients(name: str, results: Tensors, inputs: Tensors = ()) -> None:
    """Warns once per capture if the results depend on a tensor that requires gradients and is none
    of `inputs`: a region takes it as a constant."""
    pending = [result.grad_fn for result in results if result.grad_fn is not None]
    seen = set(pending)
    while pending:
        node = pending.pop()
        variable = getattr(node, "variable", None)  # of the nodes that add up a leaf's gradient
        if variable is not None and all(variable is not x for x in inputs):
            warnings.warn(
                f"{name}: the function takes a {dtype_and_shape(variable)} that requires gradients "
                "from elsewhere, and none will flow to it; make it an argument, or use "
                f"torch.no_grad() or detach() (at {_XLAC._user_line()})",
                stacklevel=2,
            )
            return
        new = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= new
        pending.extend(new)


def dtype_and_shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def same_keys(
    wanted: _XLAC._CapturedGraph, known: _XLAC._CapturedGraph, keys: Sequence[int]
) -> list[int]:
    """The keys with which `wanted` draws the numbers that a node of `known` with `keys` drew. Both
    must have been captured under one random state."""
    by_captured = dict(zip(known.keys, keys, strict=True))
    return [by_captured.get(key, key) for key in wanted.keys]


def zeros_for_none(grads: Sequence[torch.Tensor | None], tensors: Tensors) -> list[torch.Tensor]:
    return [
        torch.zeros_like(tensor) if grad is None else grad
        for grad, tensor in zip(grads, tensors, strict=True)
    ]


def gradients(
    function: Function,
    inputs: Tensors,
    grads: Tensors,
    wanted: Sequence[int],
    tracked: Sequence[bool],
) -> Tensors:
    """The gradients of `inputs[i]` for i in `wanted`, given those of the results that have any when
    the inputs in `tracked` have.

    Calls the function once more: what it makes is recorded again.
    """
    inputs = [t.detach().requires_grad_(tracked[i]) for i, t in enumerate(inputs)]
    with torch.enable_grad():
        results = [result for result in function(*inputs) if result.requires_grad]
    targets = [inputs[i] for i in wanted]
    found = torch.autograd.grad(results, targets, list(grads), allow_unused=True)
    return zeros_for_none(found, targets)


class _Call(torch.autograd.Function):
    """One use of a `PureFunction`."""

    @staticmethod
    def forward(
        ctx: Any, pure: PureFunction, captured: Captured, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        results, keys = _XLAC._record_region("call", [captured.graph], list(tensors))
        ctx.save_for_backward(*tensors)
        ctx.pure, ctx.captured, ctx.keys = pure, captured, keys
        ctx.mark_non_differentiable(
            *(r for r, needs in zip(results, captured.needs_grad, strict=True) if not needs)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        captured: Captured = ctx.captured
        given = [g for g, needs in zip(grads, captured.needs_grad, strict=True) if needs]
        wanted = tuple(i for i, needs in enumerate(ctx.needs_input_grad[2:]) if needs)
        back = ctx.pure.backward_of(captured, wanted, ctx.saved_tensors, given)
        keys = same_keys(back.graph, captured.graph, ctx.keys)
        found, _ = _XLAC._record_region(
            "call", [back.graph], [*ctx.saved_tensors, *given], keys=keys
        )
        out: list[torch.Tensor | None] = [None] * len(ctx.saved_tensors)
        for i, grad in zip(wanted, found, strict=True):
            out[i] = grad
        return (None, None, *out)


class PureFunction:
    """A function of tensors, captured once per types of its arguments, with gradients.

    The backward pass computes the forward pass again; where both are in one program, XLA sees that
    they are the same.
    """

    def __init__(self, function: Function, name: str) -> None:
        self._function = function
        self._name = name
        self._captured: dict[Any, Captured] = {}
        self._backward: dict[Any, Captured] = {}

    def __call__(self, tensors: Tensors) -> Tensors:
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        key = (
            needs_grad,
            torch.is_autocast_enabled("xla"),
            *((*type_of(t), needs_grad and t.requires_grad) for t in tensors),
        )
        captured = self._captured.get(key)
        if captured is None:
            captured = self._captured[key] = self._capture(tensors, needs_grad)
        if needs_grad:
            results: Tensors = _Call.apply(self, captured, *tensors)  # type: ignore[no-untyped-call]
            return results
        return _XLAC._record_region("call", [captured.graph], list(tensors))[0]

    def _capture(self, tensors: Tensors, needs_grad: bool) -> Captured:
        def forward(*stand_ins: torch.Tensor) -> Tensors:
            if not needs_grad:
                results = self._function(*stand_ins)
                warn_of_lost_gradients(self._name, results)
                return [result.detach() for result in results]
            inputs = [
                stand_in.detach().requires_grad_(tensor.requires_grad)
                for stand_in, tensor in zip(stand_ins, tensors, strict=True)
            ]
            with torch.enable_grad():
                results = self._function(*inputs)
            warn_of_lost_gradients(self._name, results, inputs)
            return results

        captured = Captured(forward, tensors)
        captured.refuse_writes(self._name)
        return captured

    def backward_of(
        self, captured: Captured, wanted: tuple[int, ...], inputs: Tensors, grads: Tensors
    ) -> Captured:
        key = (id(captured), wanted)
        back = self._backward.get(key)
        if back is None:
            count = len(inputs)

            def backward(*tensors: torch.Tensor) -> Tensors:
                return gradients(
                    self._function,
                    tensors[:count],
                    tensors[count:],
                    wanted,
                    captured.examples_need_grad,
                )

            back = Captured(backward, [*inputs, *grads], captured.rng_state)
            self._backward[key] = back
        return back


def flat(tree: Any) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a tree, and what puts others in their place: `unflat(tensors, rest)`."""
    leaves, spec = pytree.tree_flatten(tree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    others = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]
    return tensors, (others, spec)


def unflat(tensors: Tensors, rest: Any) -> Any:
    others, spec = rest
    remaining = iter(tensors)
    leaves = [next(remaining) if other is None else other[0] for other in others]
    return pytree.tree_unflatten(leaves, spec)
