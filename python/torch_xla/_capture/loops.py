"""Loops and branches of the program: `fori_loop`, `while_loop`, and `torch.cond`.

`torch.cond` and `torch._higher_order_ops.while_loop` come here for xla tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._capture import regions
from torch_xla._capture.regions import Captured, Tensors
from torch_xla._capture.scan import scan


class _Captured(Captured):
    """The region of a function of tensors that returns tensors in any nesting.

    Args:
        function: called with stand-ins that require no gradients.
    """

    def __init__(self, function: Callable[..., Any], tensors: Tensors) -> None:
        # What puts the results into the nesting that the function returns.
        self.result_rest: Any = None
        # Of the results: something that the function takes from elsewhere does.
        self.requires_grad = False

        def run(*stand_ins: torch.Tensor) -> Tensors:
            results, self.result_rest = regions.flat(function(*stand_ins))
            self.requires_grad = any(result.requires_grad for result in results)
            return [result.detach() for result in results]

        super().__init__(run, tensors)
        self.refuse_writes("torch.cond and while_loop")


def _on_device(values: Sequence[Any]) -> list[torch.Tensor]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    device = torch.device("xla", regions.device_of(tensors))
    return [torch.as_tensor(value, device=device) for value in values]


def while_loop(
    cond_fn: Callable[..., torch.Tensor],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> tuple[torch.Tensor, ...]:
    """Apply `body_fn` as long as `cond_fn` gives True, as one loop of the program.

    As `while cond_fn(*carried, *additional): carried = body_fn(*carried, *additional)`.

    No gradients flow through it, since nobody knows how many turns there are to keep values of:
    `backward()` through its results is an error. `fori_loop` and `scan` have them.

    Raises:
        RuntimeError: the body's results are not of the types of `carried_inputs`.
    """
    results, requires_grad = _while(cond_fn, body_fn, carried_inputs, additional_inputs)
    if requires_grad:
        token = torch.empty(0, requires_grad=True)
        return tuple(_NoGradients.apply(token, *results))  # type: ignore[no-untyped-call]
    return tuple(results)


def _while(
    cond_fn: Callable[..., torch.Tensor],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> tuple[Tensors, bool]:
    """The loop's results, and whether they would have gradients."""
    carried = _on_device(carried_inputs)
    additional = _on_device(additional_inputs) if additional_inputs else []
    tensors = [*carried, *additional]

    def body(*stand_ins: torch.Tensor) -> list[torch.Tensor]:
        results = body_fn(*stand_ins)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        return [*results, *stand_ins[len(carried) :]]

    condition, turn = _Captured(cond_fn, tensors), _Captured(body, tensors)
    results, _ = _XLAC._record_region(
        "while_loop", [condition.graph, turn.graph], tensors, len(tensors)
    )
    requires_grad = torch.is_grad_enabled() and (
        turn.requires_grad or any(tensor.requires_grad for tensor in tensors)
    )
    return results[: len(carried)], requires_grad


class _NoGradients(torch.autograd.Function):
    """A loop's results, which can't be differentiated although what it reads asks for it."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, *results: torch.Tensor) -> tuple[torch.Tensor, ...]:
        del token  # what requires gradients
        ctx.mark_non_differentiable(*(t for t in results if not t.is_floating_point()))
        return tuple(t.view_as(t) for t in results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        raise RuntimeError(
            "while_loop: gradients can't flow through a loop whose number of turns depends on "
            "data; use fori_loop or scan, or torch.no_grad() and detach() if none are needed"
        )


def fori_loop(lower: Any, upper: Any, body_fun: Callable[..., Any], *input_value: Any) -> Any:
    """Apply `body_fun` for each number from `lower` up to `upper`, as one loop of the program.

    As `for i in range(lower, upper): input_value = body_fun(i, *input_value)`; `i` is a tensor.

    Gradients flow through it, also to what `body_fun` takes from elsewhere. For them the number of
    turns must be known when it is recorded, so that bounds that are xla tensors are read then;
    without gradients, nothing is read.

    Returns:
        What the last turn returned: a tensor if there is one of `input_value`, else a tuple.
    """
    carried = _on_device(input_value)
    device = torch.device("xla", regions.device_of(carried))

    def turn(index: torch.Tensor, *values: torch.Tensor) -> list[torch.Tensor]:
        results = body_fun(index, *values)
        return [results] if isinstance(results, torch.Tensor) else list(results)

    def counted(start: int, stop: int) -> Sequence[torch.Tensor]:
        if start >= stop:
            return carried
        numbers = torch.arange(start, stop, device=device)
        function = lambda values, index: (turn(index, *values), None)  # noqa: E731
        results: list[torch.Tensor] = scan(function, carried, numbers)[0]
        return results

    bounds = (lower, upper)
    needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in carried)
    if needs_grad or not any(
        isinstance(b, torch.Tensor) and b.device.type != "cpu" for b in bounds
    ):
        results = counted(int(lower), int(upper))
    else:
        start, stop = (torch.as_tensor(b, device=device).reshape(()) for b in bounds)
        results, needs_grad = _while(
            lambda i, end, *values: i < end,
            lambda i, end, *values: (i + 1, end, *turn(i, *values)),
            (start, stop.to(start.dtype), *carried),
        )
        # What the body takes from elsewhere may require gradients.
        results = counted(int(lower), int(upper)) if needs_grad else results[2:]
    return results[0] if len(results) == 1 else tuple(results)


def cond_operator(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    """What `torch.cond` does on the xla device: both branches are recorded, one runs."""
    if not isinstance(pred, torch.Tensor) or not _XLAC._is_xla_tensor(pred):
        return (true_fn if pred else false_fn)(*operands)
    tensors = _on_device(operands)
    branches = [_Captured(branch, tensors) for branch in (true_fn, false_fn)]
    results, _ = _XLAC._record_region(
        "cond", [captured.graph for captured in branches], [pred, *tensors]
    )
    return regions.unflat(results, branches[0].result_rest)


def while_loop_operator(
    cond_fn: Any, body_fn: Any, carried: Sequence[Any], additional: Sequence[Any], *rest: Any
) -> Any:
    """What `torch._higher_order_ops.while_loop` does on the xla device."""
    del rest  # what it tells of writes, which a captured function may not do
    return while_loop(cond_fn, body_fn, carried, additional)
