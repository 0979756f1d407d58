"""`scan`: a Python loop over the slices of tensors as one loop of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_xla import _XLAC, _regions
from torch_xla._halves import Partitioned, SavedByAutograd
from torch_xla._regions import Captured, Function, Tensors

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")


class _Loop:
    """A loop's function on flat lists of tensors, captured once for the types of its arguments."""

    def __init__(
        self,
        function: Function,
        num_carried: int,
        tensors: Tensors,
        partition_fn: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.num_carried = num_carried
        self.slices = [t if i < num_carried else t[0] for i, t in enumerate(tensors)]
        self._partition_fn = partition_fn
        self._halves: SavedByAutograd | Partitioned | None = None
        self._forward: dict[bool, Captured] = {}
        self._backward: dict[tuple[int, ...], Captured] = {}
        self.needs_grad: list[bool] = []  # by result
        # Of the types of the slices of the results' gradients, and of what a turn saves.
        self.result_examples: list[torch.Tensor] = []
        self.saved_examples: list[torch.Tensor] = []
        # What puts a turn's results into the user's nesting.
        self.result_rest: Any = None

    def forward(self, saves: bool) -> Captured:
        """The function's region; with `saves`, what the backward pass needs of each turn is a
        result too."""
        captured = self._forward.get(saves)
        if captured is None:
            run = self._run_and_save if saves else self._run
            captured = self._forward[saves] = Captured(run, self.slices)
            captured.refuse_writes("scan")
        return captured

    def _run(self, *stand_ins: torch.Tensor) -> Tensors:
        results = list(self.function(*stand_ins))
        _regions.warn_of_lost_gradients("scan", results)
        return [result.detach() for result in results]

    def _run_and_save(self, *stand_ins: torch.Tensor) -> Tensors:
        if self._partition_fn is None:
            self._halves = SavedByAutograd(self.function, self.num_carried)
        else:
            self._halves = Partitioned(self.function, self._partition_fn, stand_ins)
        results, saved = self._halves.forward(stand_ins)
        self.needs_grad = self._halves.needs_grad
        return [*results, *saved]

    def backward(self, wanted: tuple[int, ...]) -> Captured:
        """The region of a turn backwards: (gradients of what was carried on; slices of what the
        turn saved, of the sequences, of the results' gradients) to (gradients of what it started
        from; gradients of the sequences' slices)."""
        captured = self._backward.get(wanted)
        if captured is not None:
            return captured
        num_carried, num_saved = self.num_carried, len(self.saved_examples)
        differentiable = [i for i in range(num_carried) if self.slices[i].is_floating_point()]
        all_wanted = tuple(dict.fromkeys([*differentiable, *wanted]))
        halves = self._halves
        assert halves is not None

        def backward(*tensors: torch.Tensor) -> Tensors:
            carried_grads = dict(zip(differentiable, tensors, strict=False))
            rest = tensors[len(differentiable) :]
            saved, rest = rest[:num_saved], rest[num_saved:]
            num_sequences = len(self.slices) - num_carried
            sequences, result_grads = rest[:num_sequences], iter(rest[num_sequences:])
            given = [
                carried_grads[i] if i < num_carried else next(result_grads)
                for i, needs in enumerate(self.needs_grad)
                if needs
            ]
            found = halves.backward(saved, sequences, given, all_wanted)
            targets = [self.slices[i] for i in all_wanted]
            return _regions.zeros_for_none(found, targets)

        examples = [self.slices[i] for i in differentiable] + self.saved_examples
        examples += self.slices[num_carried:] + self.result_examples
        captured = Captured(backward, examples, self.forward(True).rng_state)
        self._backward[wanted] = captured
        return captured


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loop: _Loop, length: int, reverse: bool, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        captured = loop.forward(True)
        results, keys = _XLAC._record_region(
            "scan", [captured.graph], list(tensors), loop.num_carried, length, reverse
        )
        count = len(loop.needs_grad)
        results, saved = results[:count], results[count:]
        loop.saved_examples = [stack[0] for stack in saved]
        ctx.loop, ctx.length, ctx.reverse, ctx.keys = loop, length, reverse, keys
        ctx.save_for_backward(*saved, *tensors[loop.num_carried :])
        ctx.mark_non_differentiable(
            *(r for r, needs in zip(results, loop.needs_grad, strict=True) if not needs)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        loop: _Loop = ctx.loop
        num_carried, num_inputs = loop.num_carried, len(loop.slices)
        saved = list(ctx.saved_tensors)  # slices of what each turn saved; the sequences
        differentiable = [i for i in range(num_carried) if loop.slices[i].is_floating_point()]
        carried = [
            grads[i] if loop.needs_grad[i] else torch.zeros_like(loop.slices[i])
            for i in differentiable
        ]
        result_grads = [
            grad for i, grad in enumerate(grads) if i >= num_carried and loop.needs_grad[i]
        ]
        loop.result_examples = [grad[0] for grad in result_grads]
        wanted = tuple(
            i for i, needs in enumerate(ctx.needs_input_grad[3:]) if needs and i >= num_carried
        )
        back = loop.backward(wanted)
        keys = _regions.same_keys(back.graph, loop.forward(True).graph, ctx.keys)
        found, _ = _XLAC._record_region(
            "scan",
            [back.graph],
            [*carried, *saved, *result_grads],
            len(carried),
            ctx.length,
            not ctx.reverse,
            keys,
        )
        out: list[torch.Tensor | None] = [None] * num_inputs
        for i, grad in zip([*differentiable, *wanted], found, strict=True):
            out[i] = grad if ctx.needs_input_grad[3 + i] else None
        return (None, None, None, *out)


def run(loop: _Loop, tensors: Tensors, length: int, reverse: bool = False) -> Tensors:
    """The loop on what it carries at first and on the sequences."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        loop.forward(True)
        results: Tensors = _Scan.apply(loop, length, reverse, *tensors)  # type: ignore[no-untyped-call]
        return results
    captured = loop.forward(False)
    return _XLAC._record_region(
        "scan", [captured.graph], list(tensors), loop.num_carried, length, reverse
    )[0]


def default_partition(
    joint_module: torch.fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """The forward and the backward half of a turn: what the forward half computes and the backward
    half needs is kept, and nothing is computed twice."""
    from torch._functorch.partitioners import default_partition as divide

    forward, backward = divide(
        joint_module, joint_inputs, num_fwd_outputs=num_fwd_outputs, **options
    )
    return forward, backward


_pure_loops: dict[Any, _Loop] = {}


def scan(
    fn: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X,
    partition_fn: Callable[..., Any] = default_partition,
    is_fn_pure: bool = False,
) -> tuple[Carry, Y]:
    """Apply `fn` to the slices of `xs` one after the other, as one loop of the program.

    As `for x in xs: carry, y = fn(carry, x)`, with the y's stacked. What is compiled does not grow
    with the number of slices. Gradients flow to `init` and `xs`, and to nothing that `fn` takes
    from elsewhere: a warning says so if that requires any.

    Args:
        fn: takes what is carried and a slice; returns what is carried on, of the same types, and a
            result (tensors in any nesting, or None).
        init: what the first turn is given.
        xs: tensors with equal first sizes, in any nesting.
        partition_fn: divides a turn into what the forward and what the backward pass computes, as
            AOTAutograd's partitioners do: from the graph of both, the inputs and
            `num_fwd_outputs`. What the first computes and the second needs is kept for every
            turn. By default that is what autograd keeps; with
            `torch._functorch.partitioners.min_cut_rematerialization_partition` it is less, and the
            rest is computed again. With a function of one's own `fn` takes no tensors from
            elsewhere.
        is_fn_pure: `fn` does the same whenever it is called on tensors of the same types, so that
            it need not be called again.

    Raises:
        RuntimeError: what `fn` carries on is not of the types of what it was given, or it writes to
            its arguments.
    """
    carried, carried_rest = _regions.flat(init)
    sequences, rest = _regions.flat(xs)
    if not sequences:
        raise ValueError("scan: xs must have at least one tensor")
    length = sequences[0].shape[0] if sequences[0].dim() else 0
    for sequence in sequences:
        if sequence.dim() == 0 or sequence.shape[0] != length:
            raise ValueError(
                f"scan: the tensors of xs must have equal first sizes, got {length} and "
                f"{tuple(sequence.shape)[:1]}"
            )
    if length == 0:
        raise ValueError("scan: xs must have at least one slice")
    tensors = [*carried, *sequences]
    num_carried = len(carried)
    key = None
    if is_fn_pure:
        key = (fn, partition_fn, torch.is_autocast_enabled("xla"), *map(_regions.type_of, tensors))
    found = _pure_loops.get(key) if key is not None else None
    if found is None:

        def function(*flat: torch.Tensor) -> Tensors:
            carry, y = fn(
                _regions.unflat(flat[:num_carried], carried_rest),
                _regions.unflat(flat[num_carried:], rest),
            )
            carried_on, next_rest = _regions.flat(carry)
            results, result_rest = _regions.flat(y)
            if next_rest[1] != carried_rest[1]:
                raise RuntimeError("scan: what is carried must keep its structure")
            loop.result_rest = result_rest
            return [*carried_on, *results]

        partition = None if partition_fn is default_partition else partition_fn
        found = loop = _Loop(function, num_carried, tensors, partition)
        if key is not None:
            _pure_loops[key] = found
    results = run(found, tensors, length)
    return (
        _regions.unflat(results[:num_carried], carried_rest),
        _regions.unflat(results[num_carried:], found.result_rest),
    )
