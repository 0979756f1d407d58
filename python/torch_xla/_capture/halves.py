"""The two halves of a function with gradients: what the forward pass computes and keeps, and what
the backward pass makes of it. `scan` records each as a loop of its own."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from torch_xla import _XLAC
from torch_xla._capture import closed_over, regions
from torch_xla._capture.regions import Function, Tensors


def _tracked(stand_ins: Tensors) -> list[torch.Tensor]:
    return [s.detach().requires_grad_(s.is_floating_point()) for s in stand_ins]


def _permutation(view: torch.Tensor, base: torch.Tensor) -> list[int] | None:
    """The order of dimensions with which `base` is `view`, or None if it is another view."""
    if view.dim() != base.dim() or view.storage_offset() != base.storage_offset():
        return None
    left = list(range(base.dim()))
    order = []
    for size, stride in zip(view.shape, view.stride(), strict=True):
        same = [i for i in left if (base.shape[i], base.stride(i)) == (size, stride)]
        if not same:
            return None
        order.append(same[0])
        left.remove(same[0])
    return order


def _unchanged(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    version = tensor._version

    def find() -> torch.Tensor:
        if tensor._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a {closed_over.dtype_and_shape(tensor)} that the function of "
                f"a loop takes from elsewhere is at version {tensor._version}; expected version "
                f"{version} instead"
            )
        return tensor

    return find


class _Substituting(TorchFunctionMode):
    """While it is active, `substitute(tensor)` takes the place of each xla tensor: among those of a
    trace, which are made up, these are what the function takes from elsewhere."""

    def __init__(self, substitute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._substitute = substitute

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        return closed_over.call_replaced(func, args, kwargs, self.replace)

    def replace(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._substitute(tensor) if _XLAC._is_xla_tensor(tensor) else tensor


def _taken_from_elsewhere(function: Function, examples: Tensors) -> list[torch.Tensor]:
    """The xla tensors that the function computes with beside its arguments."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake_mode = FakeTensorMode()
    taken: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in taken:
            made_up = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
            taken[id(tensor)] = (tensor, made_up)
        return taken[id(tensor)][1]

    arguments = [fake_mode.from_tensor(example) for example in examples]
    mode = _Substituting(note)
    with torch.no_grad(), fake_mode, mode:
        for result in function(*arguments):
            mode.replace(result)
    return [tensor for tensor, _ in taken.values()]


@dataclasses.dataclass
class _Values:
    """What stands for the tensors that autograd kept: in the backward half, and in the forward half
    if that needs them itself. It knows nothing of the autograd graph, which refers to it."""

    handed_over: Sequence[torch.Tensor] = ()
    arguments: Sequence[torch.Tensor] = ()
    closed_over: Sequence[torch.Tensor] = ()

    def forget(self) -> None:
        self.handed_over, self.arguments, self.closed_over = (), (), ()


def _found(find: Callable[[], torch.Tensor]) -> torch.Tensor:
    return find()


class SavedByAutograd:
    """What autograd keeps is what the forward half hands over.

    The backward half runs the autograd graph that the forward half made, on other tensors in the
    place of those that it kept.

    Both are called in a capture that closes over tensors (`ClosedOver`); these count as arguments
    behind the others.

    Args:
        num_carried: how many arguments the backward half will not have. It has the others, so that
            they need not be kept.
    """

    def __init__(self, num_carried: int) -> None:
        self._num_carried = num_carried
        self._stand_ins: list[torch.Tensor] = []
        self._saved: list[torch.Tensor] = []
        self._kept: list[torch.Tensor] = []  # so that no alias's number is used again
        self._places: dict[Any, int] = {}
        self._values = _Values()
        # Edges of the autograd graph, and no tensors: what a capture recorded ends with it.
        self._inputs: list[GradientEdge | None] = []
        self._results: list[GradientEdge] = []
        self.needs_grad: list[bool] = []

    def forward(self, function: Function, stand_ins: Tensors) -> tuple[Tensors, Tensors]:
        """The function's results, and what the backward half needs beside arguments."""
        closed = closed_over.current()
        assert closed is not None
        self._stand_ins = list(stand_ins)
        self._values.handed_over = self._saved
        self._values.arguments = stand_ins[self._num_carried :]
        self._values.closed_over = closed.stand_ins
        inputs = _tracked(stand_ins)
        pack = weakref.WeakMethod(self._pack)  # the graph, which this refers to, keeps its hooks
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: pack()(t), _found)  # type: ignore[misc]
        with torch.enable_grad(), hooks:
            results = [closed.replace(result) for result in function(*inputs)]
        inputs += closed.stand_ins
        for leaf in closed.leaks(results, inputs):
            if closed.is_kept or not _XLAC._is_xla_tensor(leaf):
                closed_over.warn_of_lost_gradients(closed.name, leaf)
            else:
                closed.add(leaf)
                inputs.append(leaf)
        with torch._C.DisableTorchFunction():
            self._inputs = [get_gradient_edge(x) if x.requires_grad else None for x in inputs]
        self.needs_grad = [result.requires_grad for result in results]
        self._results = [get_gradient_edge(r) for r in results if r.requires_grad]
        saved = self._saved
        self._stand_ins, self._saved, self._kept = [], [], []
        self._values.forget()
        return results, saved

    def _pack(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """How the backward half finds the tensor."""
        values = self._values
        tensor = tensor.detach()
        if not _XLAC._is_xla_tensor(tensor) or _XLAC._kind_of_data(tensor) == "array":
            return _unchanged(tensor)  # the function took it from elsewhere
        alias = _XLAC._alias_id(tensor)
        for i, stand_in in enumerate(self._stand_ins[self._num_carried :]):
            if _XLAC._alias_id(stand_in) != alias:
                continue
            order = _permutation(tensor, stand_in)
            if order is not None:
                return lambda: values.arguments[i].permute(order)
        found = self._of_closed_over(tensor, alias)
        if found is not None:
            return found
        # A copy: the function may write to the tensor later.
        key = (alias, tensor._version, *regions.type_of(tensor), tensor.storage_offset())
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._saved)
            self._saved.append(tensor.clone())
            self._kept.append(tensor)
        return lambda: values.handed_over[place]

    def _of_closed_over(
        self, tensor: torch.Tensor, alias: int
    ) -> Callable[[], torch.Tensor] | None:
        """The tensor as a view of what the function closes over, which no turn need keep."""
        values = self._values
        for i, stand_in in enumerate(values.closed_over):
            if _XLAC._alias_id(stand_in) != alias or tensor.dtype != stand_in.dtype:
                continue
            if tensor.is_conj() or tensor.is_neg():
                continue
            order = _permutation(tensor, stand_in)
            if order is not None:
                return lambda: values.closed_over[i].permute(order)
            layout = (tensor.shape, tensor.stride(), tensor.storage_offset())
            return lambda: values.closed_over[i].as_strided(*layout)
        return None

    def backward(
        self, saved: Tensors, arguments: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Sequence[torch.Tensor | None]:
        """The gradients of the function's arguments `wanted`, given those of the results that have
        any."""
        closed = closed_over.current()
        assert closed is not None
        self._values.handed_over, self._values.arguments = saved, arguments
        self._values.closed_over = closed.stand_ins
        try:
            return torch.autograd.grad(
                self._results,
                [edge for edge in (self._inputs[i] for i in wanted) if edge is not None],
                list(grads),
                allow_unused=True,
                retain_graph=True,
            )
        finally:
            self._values.forget()


class Partitioned:
    """The halves into which a partitioner of AOTAutograd divides the graph of both.

    Both are called in a capture that closes over tensors, as those of `SavedByAutograd`.

    Args:
        function: from flat tensors to flat tensors.
        partition_fn: as `torch._functorch.partitioners.default_partition`.
        examples: tensors of the arguments' types.
    """

    def __init__(
        self, function: Function, partition_fn: Callable[..., Any], examples: Tensors
    ) -> None:
        self._num_arguments = len(examples)
        self._taken = _taken_from_elsewhere(function, examples)
        closed = closed_over.current()
        assert closed is not None
        taken = [closed.replace(tensor) for tensor in self._taken]
        inputs = [
            *_tracked(examples),
            *(t.detach().requires_grad_(t.requires_grad) for t in taken),
        ]
        graphs: list[torch.fx.GraphModule] = []
        traced = self._traced(function, partition_fn, graphs)
        with torch.enable_grad():
            results = traced(*inputs)
        self.needs_grad = [result.requires_grad for result in results]
        self._num_results = len(results)
        differentiable = [result for result in results if result.requires_grad]
        targets = [x for x in inputs if x.requires_grad]
        # Has the backward half compiled, which is to say kept.
        found = torch.autograd.grad(
            differentiable,
            targets,
            [torch.zeros_like(result) for result in differentiable],
            allow_unused=True,
        )
        if len(graphs) != 2:
            raise RuntimeError("scan: the partition_fn needs a function that has gradients")
        self._forward, self._backward = graphs
        # By what the backward half needs: which of `_taken` it is, or None.
        self._place_of_saved: list[int | None] = []
        # By what the capture closes over: its place among all inputs.
        self._places = [
            self._num_arguments + i for i, stand_in in enumerate(taken) if stand_in.requires_grad
        ]
        closed.has_gradient = [
            grad is not None for grad in found[len(targets) - len(self._places) :]
        ]

    def _traced(
        self,
        function: Function,
        partition_fn: Callable[..., Any],
        graphs: list[torch.fx.GraphModule],
    ) -> Callable[..., list[torch.Tensor]]:
        """The function of arguments and of what it takes from elsewhere, which keeps its halves'
        graphs when it is called and differentiated."""
        from torch._functorch.aot_autograd import (  # type: ignore[attr-defined]
            aot_function,
            make_boxed_func,
        )

        def keep(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
            del example_inputs
            graphs.append(gm)
            return make_boxed_func(gm.forward)

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            arguments, taken = tensors[: self._num_arguments], tensors[self._num_arguments :]
            place_of = {id(tensor): i for i, tensor in enumerate(self._taken)}
            mode = _Substituting(lambda tensor: taken[place_of[id(tensor)]])
            with mode:
                # Copies: results that are arguments would not be in the graphs.
                return [mode.replace(result).clone() for result in function(*arguments)]

        traced: Callable[..., list[torch.Tensor]] = aot_function(
            run, fw_compiler=keep, bw_compiler=keep, partition_fn=partition_fn
        )
        return traced

    def _taken_now(self) -> Tensors:
        """What stands for the tensors taken from elsewhere in this capture."""
        closed = closed_over.current()
        assert closed is not None
        taken = list(self._taken)
        for place, stand_in in zip(self._places, closed.stand_ins, strict=True):
            taken[place - self._num_arguments] = stand_in
        return taken

    def forward(self, stand_ins: Tensors) -> tuple[Tensors, Tensors]:
        taken = self._taken_now()
        with torch.no_grad():
            values = list(self._forward(*stand_ins, *taken))
        results, saved = values[: self._num_results], values[self._num_results :]
        place_of = {id(tensor): i for i, tensor in enumerate(taken)}
        self._place_of_saved = [place_of.get(id(value)) for value in saved]
        return results, [
            v for v, place in zip(saved, self._place_of_saved, strict=True) if place is None
        ]

    def backward(
        self, saved: Tensors, arguments: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Sequence[torch.Tensor | None]:
        del arguments  # those that it needs are among `saved`
        taken, handed_over = self._taken_now(), iter(saved)
        needed = [
            next(handed_over) if place is None else taken[place] for place in self._place_of_saved
        ]
        with torch.no_grad():
            found = list(self._backward(*needed, *grads))
        count = self._num_arguments
        return [found[i if i < count else self._places[i - count]] for i in wanted]
