"""`scan`: a Python loop over the slices of tensors as one loop of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_xla import _XLAC
from torch_xla._capture import closed_over, regions
from torch_xla._capture.halves import Partitioned, SavedByAutograd
from torch_xla._capture.regions import Captured, Function, Tensors

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")


class _Loop:
    """A loop's function on flat lists of tensors, captured once for the types of its arguments.

    Args:
        is_kept: for later loops, too.
    """

    def __init__(
        self,
        function: Function,
        num_carried: int,
        tensors: Tensors,
        partition_fn: Callable[..., Any] | None = None,
        is_kept: bool = False,
    ) -> None:
        self._function: Function | None = function
        self.num_carried = num_carried
        slices = [t if i < num_carried else t[0] for i, t in enumerate(tensors)]
        # Of their types, as the other examples.
        self.slices = regions.stand_ins_like(slices)
        self._partition_fn = partition_fn
        self.is_kept = is_kept
        self._halves: SavedByAutograd | Partitioned | None = None
        self._forward: dict[tuple[bool, bool], Captured] = {}
        self._backward: dict[tuple[int, ...], Captured] = {}
        # Carried tensors that the function writes to: it is given copies of them.
        self._written: set[int] = set()
        # Of the results of a turn without gradients: what it closes over may require some.
        self.requires_grad = False
        self.needs_grad: list[bool] = []  # by result
        # Of the types of the slices of the results' gradients, and of what a turn saves.
        self.result_examples: list[torch.Tensor] = []
        self.saved_examples: list[torch.Tensor] = []
        # What puts a turn's results into the user's nesting.
        self.result_rest: Any = None

    @property
    def differentiable(self) -> list[int]:
        """Those of what is carried that have gradients."""
        return [i for i in range(self.num_carried) if self.slices[i].is_floating_point()]

    def forward(self, saves: bool) -> Captured:
        """The function's region; with `saves`, what the backward pass needs of each turn is a
        result too."""
        key = (saves, saves or torch.is_grad_enabled())
        captured = self._forward.get(key)
        if captured is None:
            captured = self._forward[key] = self._capture(saves)
        return captured

    def _capture(self, saves: bool) -> Captured:
        def capture(run: Function) -> Captured:
            return Captured(run, self.slices, closing_over="scan", is_kept=self.is_kept)

        run = self._run_and_save if saves else self._run
        try:
            captured = capture(run)
        except RuntimeError:
            # Autograd refuses writes to what requires a gradient; without it they are seen.
            with torch.no_grad():
                finds_more = saves and self._note_writes(capture(self._run))
            if not finds_more:
                raise
            captured = capture(run)
        if self._note_writes(captured):
            captured = capture(run)
        captured.refuse_writes("scan")
        return captured

    def _note_writes(self, captured: Captured) -> bool:
        """Whether the function wrote to a carried tensor itself, in the place of a copy."""
        found = {i for i in captured.written if i < self.num_carried}
        self._written |= found
        return bool(found)

    def _call(self, *stand_ins: torch.Tensor) -> Tensors:
        assert self._function is not None
        given = [t.clone() if i in self._written else t for i, t in enumerate(stand_ins)]
        return self._function(*given)

    def release(self) -> None:
        """The loop was recorded, and will not be again: at most its derivative."""
        self._function = None
        self._forward.pop((False, torch.is_grad_enabled()), None)
        for captured in self._forward.values():
            captured.release()

    def _run(self, *stand_ins: torch.Tensor) -> Tensors:
        results = closed_over.inside(self._call(*stand_ins))
        self.requires_grad |= any(result.requires_grad for result in results)
        return [result.detach() for result in results]

    def _run_and_save(self, *stand_ins: torch.Tensor) -> Tensors:
        if self._partition_fn is None:
            saving = SavedByAutograd(self.num_carried)
            results, saved = saving.forward(self._call, stand_ins)
            self._halves = saving
        else:
            divided = Partitioned(self._call, self._partition_fn, stand_ins)
            results, saved = divided.forward(stand_ins)
            self._halves = divided
        self.needs_grad = self._halves.needs_grad
        return [*results, *saved]

    def backward(self, wanted: tuple[int, ...]) -> Captured:
        """The region of a turn backwards: (gradients of what was carried on, sums of the gradients
        of what the function closes over; slices of what the turn saved, of the sequences, of the
        results' gradients) to (gradients of what it started from, new sums; gradients of the
        sequences' slices).

        Args:
            wanted: sequences, as their places among all arguments, and what the function closes
                over, which counts as further arguments.
        """
        captured = self._backward.get(wanted)
        if captured is not None:
            return captured
        outside = self.forward(True).outside
        differentiable, num_carried = self.differentiable, self.num_carried
        num_arguments, num_saved = len(self.slices), len(self.saved_examples)
        summed = [i for i in wanted if i >= num_arguments]
        all_wanted = tuple([*differentiable, *summed, *(i for i in wanted if i < num_arguments)])
        halves = self._halves
        assert halves is not None

        def backward(*tensors: torch.Tensor) -> Tensors:
            carried_grads = dict(zip(differentiable, tensors, strict=False))
            rest = tensors[len(differentiable) :]
            sums, rest = rest[: len(summed)], rest[len(summed) :]
            saved, rest = rest[:num_saved], rest[num_saved:]
            num_sequences = num_arguments - num_carried
            sequences, result_grads = rest[:num_sequences], iter(rest[num_sequences:])
            given = [
                carried_grads[i] if i < num_carried else next(result_grads)
                for i, needs in enumerate(self.needs_grad)
                if needs
            ]
            found = list(halves.backward(saved, sequences, given, all_wanted))
            for i, total in enumerate(sums, len(differentiable)):
                grad = found[i]
                found[i] = total if grad is None else total + grad
            return regions.zeros_for_none(found, [all_inputs[i] for i in all_wanted])

        all_inputs = [*self.slices, *outside]
        examples = [all_inputs[i] for i in [*differentiable, *summed]] + self.saved_examples
        examples += self.slices[num_carried:] + self.result_examples
        rng_state = self.forward(True).rng_state
        captured = Captured(backward, examples, rng_state, "scan", self.is_kept, outside)
        if self.is_kept:
            self._backward[wanted] = captured
        return captured


class _Scan(torch.autograd.Function):
    """A loop's turns: its arguments, and then what its function closes over."""

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
        loop.saved_examples = regions.stand_ins_like([stack[0] for stack in saved])
        ctx.loop, ctx.length, ctx.reverse, ctx.keys = loop, length, reverse, keys
        ctx.num_saved = len(saved)
        ctx.save_for_backward(*saved, *tensors[loop.num_carried :])
        ctx.mark_non_differentiable(
            *(r for r, needs in zip(results, loop.needs_grad, strict=True) if not needs)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        loop: _Loop = ctx.loop
        num_carried, num_arguments = loop.num_carried, len(loop.slices)
        num_stacks = ctx.num_saved + num_arguments - num_carried
        tensors = list(ctx.saved_tensors)
        # Slices of what each turn saved, and the sequences; what the function closes over.
        stacks, outside = tensors[:num_stacks], tensors[num_stacks:]
        differentiable = loop.differentiable
        carried = [
            grads[i] if loop.needs_grad[i] else regions.zeros_of(loop.slices[i])
            for i in differentiable
        ]
        result_grads = [
            grad for i, grad in enumerate(grads) if i >= num_carried and loop.needs_grad[i]
        ]
        loop.result_examples = regions.stand_ins_like([grad[0] for grad in result_grads])
        wanted = tuple(
            i for i, needs in enumerate(ctx.needs_input_grad[3:]) if needs and i >= num_carried
        )
        summed = [i for i in wanted if i >= num_arguments]
        carried += [regions.zeros_of(outside[i - num_arguments]) for i in summed]
        back = loop.backward(wanted)
        keys = regions.same_keys(back, loop.forward(True), ctx.keys)
        found, _ = _XLAC._record_region(
            "scan",
            [back.graph],
            [*carried, *stacks, *result_grads, *outside],
            len(carried),
            ctx.length,
            not ctx.reverse,
            keys,
        )
        places = [*differentiable, *summed, *(i for i in wanted if i < num_arguments)]
        out: list[torch.Tensor | None] = [None] * (num_arguments + len(outside))
        for i, grad in zip(places, found, strict=True):
            out[i] = grad if ctx.needs_input_grad[3 + i] else None
        return (None, None, None, *out)


def run(loop: _Loop, tensors: Tensors, length: int, reverse: bool = False) -> Tensors:
    """The loop on what it carries at first and on the sequences."""
    tensors = closed_over.inside(tensors)
    needs_grad = False
    if torch.is_grad_enabled():
        needs_grad = any(tensor.requires_grad for tensor in tensors)
        if not needs_grad:
            loop.forward(False)
            needs_grad = loop.requires_grad
    captured = loop.forward(needs_grad)
    operands = [*tensors, *captured.outside_operands()]
    results: Tensors
    if needs_grad:
        results = _Scan.apply(loop, length, reverse, *operands)  # type: ignore[no-untyped-call]
    else:
        results, _ = _XLAC._record_region(
            "scan", [captured.graph], operands, loop.num_carried, length, reverse
        )
    if not loop.is_kept:
        loop.release()
    return results


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
    with the number of slices. Gradients flow to `init` and `xs`, and to what `fn` takes from
    elsewhere, such as a module's parameters.

    Args:
        fn: takes what is carried and a slice; returns what is carried on, of the same types, and a
            result (tensors in any nesting, or None). It may write to what is carried, which is a
            copy then: `init` stays as it was. It is called once more when it does.
        init: what the first turn is given.
        xs: tensors with equal first sizes, in any nesting.
        partition_fn: divides a turn into what the forward and what the backward pass computes, as
            AOTAutograd's partitioners do: from the graph of both, the inputs and
            `num_fwd_outputs`. What the first computes and the second needs is kept for every
            turn. By default that is what autograd keeps; with
            `torch._functorch.partitioners.min_cut_rematerialization_partition` it is less, and the
            rest is computed again.
        is_fn_pure: `fn` does the same whenever it is called on tensors of the same types, so that
            it need not be called again. Parameters that it takes from elsewhere are read anew each
            time; other tensors are constants.

    Raises:
        RuntimeError: what `fn` carries on is not of the types of what it was given, or it writes to
            a slice.
    """
    carried, carried_rest = regions.flat(init)
    sequences, rest = regions.flat(xs)
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
        key = (fn, partition_fn, torch.is_autocast_enabled("xla"), *map(regions.type_of, tensors))
    found = _pure_loops.get(key) if key is not None else None
    if found is None:

        def function(*flat: torch.Tensor) -> Tensors:
            carry, y = fn(
                regions.unflat(flat[:num_carried], carried_rest),
                regions.unflat(flat[num_carried:], rest),
            )
            carried_on, next_rest = regions.flat(carry)
            results, result_rest = regions.flat(y)
            if next_rest[1] != carried_rest[1]:
                raise RuntimeError("scan: what is carried must keep its structure")
            loop.result_rest = result_rest
            return [*carried_on, *results]

        partition = None if partition_fn is default_partition else partition_fn
        found = loop = _Loop(function, num_carried, tensors, partition, is_kept=key is not None)
        if key is not None:
            _pure_loops[key] = found
    results = run(found, tensors, length)
    return (
        regions.unflat(results[:num_carried], carried_rest),
        regions.unflat(results[num_carried:], found.result_rest),
    )
