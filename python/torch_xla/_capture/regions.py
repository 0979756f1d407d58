"""Functions of tensors that are recorded once and then stand as one node in the graph: what loops,
branches, `torch.compile` and `assume_pure` are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla import _XLAC, _devices
from torch_xla._capture import closed_over
from torch_xla._capture.closed_over import ClosedOver

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
    """Inference mode is off inside; gradients stay off if it was on. Hooks on what autograd saves,
    such as those of a capture around this one, are for what is outside.

    Backward passes run in this thread. Leaving inference mode would allow them another, which would
    hold on to tensors of the capture after its end.
    """
    is_on = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    hooks: Any = contextlib.nullcontext()
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        # What is kept must not refer to the graph that keeps it.
        hooks = torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda t: t)
    with (
        torch.inference_mode(False),
        torch.autograd.set_multithreading_enabled(False),
        torch.set_grad_enabled(is_on),
        hooks,
    ):
        yield


@contextlib.contextmanager
def collectives_start_from(index: int, token: torch.Tensor | None) -> Iterator[None]:
    """A context whose collectives are ordered behind `token`, not behind those of the device."""
    before = _XLAC._exchange_token(index, token)
    try:
        yield
    finally:
        _XLAC._exchange_token(index, before)


class Captured:
    """A function captured for the types of `examples`.

    Args:
        function: called once, with stand-ins for `examples`; returns xla tensors.
        examples: xla tensors.
        rng_state: capture with the random keys that an earlier capture had.
        closing_over: the name of what finds the tensors that require gradients and that `function`
            takes from elsewhere, for messages. They are `outside`, and operands behind the
            arguments; without a name, they are constants.
        is_kept: as for `ClosedOver`.
        outside: those that an earlier capture of the function found.
    """

    def __init__(
        self,
        function: Function,
        examples: Tensors,
        rng_state: torch.Tensor | None = None,
        closing_over: str | None = None,
        is_kept: bool = False,
        outside: Tensors | None = None,
    ) -> None:
        index = device_of(examples)
        generator = _devices.generator_of(index)
        before = generator.get_state()
        self.outside: list[torch.Tensor] = []
        self._outside_has_grad: list[bool] = []
        self.rng_state = before if rng_state is None else rng_state
        generator.set_state(self.rng_state)
        capture = _XLAC._Capture(index)
        try:
            # Tensors of inference mode do not count the writes to them.
            with _normal_tensors(), self._own_order(index):
                stand_ins = [capture.placeholder(example) for example in examples]
                if closing_over is None:
                    results = list(function(*stand_ins))
                else:
                    closed = ClosedOver(
                        closing_over,
                        lambda t: capture.placeholder(t, is_outside=True),
                        is_kept,
                        outside,
                    )
                    results = self._call(function, stand_ins, closed)
            written = [i for i, stand_in in enumerate(stand_ins) if stand_in._version > 0]
            # None when it was released.
            self.graph: Any = capture.finish(results + [stand_ins[i] for i in written])
            self.keys = self.graph.keys
        finally:
            capture.close()
            # A capture draws keys, and each use of the region draws its own.
            generator.set_state(before)
        self.num_results = len(results)
        # The arguments that the function wrote; their new values are the last results.
        self.written = written
        self.needs_grad = [result.requires_grad for result in results]
        self.examples_need_grad = [example.requires_grad for example in examples]

    @staticmethod
    def _own_order(index: int) -> contextlib.AbstractContextManager[None]:
        """Collectives of the region are ordered among themselves."""
        if not _XLAC._has_groups():
            return contextlib.nullcontext()
        return collectives_start_from(index, _XLAC._new_token(index))

    def _call(
        self, function: Function, stand_ins: Tensors, closed: ClosedOver
    ) -> list[torch.Tensor]:
        with closed:
            results = [closed.replace(result) for result in function(*stand_ins)]
        closed.refuse_writes()
        if not closed.has_gradient:
            closed.note_gradients(results)
        self.outside, self._outside_has_grad = list(closed.tensors), closed.has_gradient
        closed.forget()
        return results

    def outside_operands(self) -> list[torch.Tensor]:
        """`outside` as operands of an autograd function that records the region: those that no
        result depends on have no gradients, rather than zeros."""
        return [
            tensor if has_grad else tensor.detach()
            for tensor, has_grad in zip(
                closed_over.inside(self.outside), self._outside_has_grad, strict=True
            )
        ]

    def release(self) -> None:
        """Forgets the region and all tensors: only what captures of its derivatives need is left.

        An autograd graph may keep this for longer than the capture around it, whose tensors these
        may be.
        """
        self.outside = stand_ins_like(self.outside)
        self.graph = None

    def refuse_writes(self, name: str) -> None:
        if self.written:
            raise RuntimeError(
                f"{name}: the function writes to its argument {self.written[0]}; return the new "
                "value in the place of writing it"
            )


def same_keys(wanted: Captured, known: Captured, keys: Sequence[int]) -> list[int]:
    """The keys with which `wanted` draws the numbers that a node of `known` with `keys` drew. Both
    must have been captured under one random state."""
    by_captured = dict(zip(known.keys, keys, strict=True))
    return [by_captured.get(key, key) for key in wanted.keys]


def stand_ins_like(tensors: Tensors) -> list[torch.Tensor]:
    """Tensors of the same types, without values: what may be kept for captures to come. No barrier
    computes them, and they outlive the capture that made `tensors`."""
    if not tensors:
        return []
    capture = _XLAC._Capture(device_of(tensors))
    try:
        return [capture.placeholder(tensor) for tensor in tensors]
    finally:
        capture.close()


def zeros_of(tensor: torch.Tensor) -> torch.Tensor:
    """As `zeros_like`, also for a tensor without a value."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def zeros_for_none(grads: Sequence[torch.Tensor | None], tensors: Tensors) -> list[torch.Tensor]:
    return [
        zeros_of(tensor) if grad is None else grad
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
    the inputs in `tracked` have. Behind the inputs count the tensors that the function closes over.

    Calls the function once more: what it makes is recorded again.
    """
    inputs = [t.detach().requires_grad_(tracked[i]) for i, t in enumerate(inputs)]
    with torch.enable_grad():
        results = [result for result in function(*inputs) if result.requires_grad]
    closed = closed_over.current()
    known = [*inputs, *(closed.stand_ins if closed is not None else [])]
    targets = [known[i] for i in wanted]
    found = torch.autograd.grad(results, targets, list(grads), allow_unused=True)
    return zeros_for_none(found, targets)


class _Call(torch.autograd.Function):
    """One use of a `PureFunction`: its arguments, and then what it closes over."""

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
        tensors = ctx.saved_tensors
        inputs = tensors[: len(tensors) - len(captured.outside)]
        back = ctx.pure.backward_of(captured, wanted, inputs, given)
        keys = same_keys(back, captured, ctx.keys)
        operands = [*inputs, *given, *tensors[len(inputs) :]]
        found, _ = _XLAC._record_region("call", [back.graph], operands, keys=keys)
        out: list[torch.Tensor | None] = [None] * len(tensors)
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
        tensors = closed_over.inside(tensors)
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        captured = self._captured_for(tensors, needs_grad)
        if torch.is_grad_enabled() and not needs_grad:
            needs_grad = any(t.requires_grad for t in captured.outside)
            if needs_grad:
                captured = self._captured_for(tensors, True)
        operands = [*tensors, *captured.outside_operands()]
        if needs_grad:
            results: Tensors = _Call.apply(self, captured, *operands)  # type: ignore[no-untyped-call]
            return results
        return _XLAC._record_region("call", [captured.graph], operands)[0]

    def _captured_for(self, tensors: Tensors, needs_grad: bool) -> Captured:
        key = (
            needs_grad,
            torch.is_autocast_enabled("xla"),
            *((*type_of(t), needs_grad and t.requires_grad) for t in tensors),
        )
        captured = self._captured.get(key)
        if captured is None:
            captured = self._captured[key] = self._capture(tensors, needs_grad)
        return captured

    def _capture(self, tensors: Tensors, needs_grad: bool) -> Captured:
        tracked = [needs_grad and tensor.requires_grad for tensor in tensors]

        def forward(*stand_ins: torch.Tensor) -> Tensors:
            inputs = list(stand_ins)
            if needs_grad:
                inputs = [
                    stand_in.detach().requires_grad_(is_tracked)
                    for stand_in, is_tracked in zip(stand_ins, tracked, strict=True)
                ]
            with torch.set_grad_enabled(needs_grad or torch.is_grad_enabled()):
                results = list(self._function(*inputs))
            closed = closed_over.current()
            assert closed is not None
            for leaf in closed.leaks(results, inputs):
                closed_over.warn_of_lost_gradients(self._name, leaf)
            return results if needs_grad else [result.detach() for result in results]

        captured = Captured(forward, tensors, closing_over=self._name, is_kept=True)
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

            back = Captured(
                backward,
                [*inputs, *grads],
                captured.rng_state,
                self._name,
                is_kept=True,
                outside=captured.outside,
            )
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
