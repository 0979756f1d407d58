"""The two halves of a function with gradients: what the forward pass computes and keeps, and what
the backward pass makes of it. `scan` records each as a loop of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from torch_xla import _XLAC, _regions
from torch_xla._regions import Function, Tensors


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


class SavedByAutograd:
    """What autograd keeps is what the forward half hands over.

    The backward half runs the autograd graph that the forward half made, on other tensors in the
    place of those that it kept.

    Args:
        function: from flat tensors to flat tensors.
        num_carried: how many arguments the backward half will not have. It has the others, so that
            they need not be kept.
    """

    def __init__(self, function: Function, num_carried: int) -> None:
        self._function = function
        self._num_carried = num_carried
        self._stand_ins: list[torch.Tensor] = []
        self._saved: list[torch.Tensor] = []
        self._kept: list[torch.Tensor] = []  # so that no alias's number is used again
        self._places: dict[Any, int] = {}
        # In the backward half: what stands for each of both.
        self._arguments: Sequence[torch.Tensor] = []
        self._handed_over: Sequence[torch.Tensor] = []
        # Edges of the autograd graph, and no tensors: what a capture recorded ends with it.
        self._inputs: list[GradientEdge | None] = []
        self._results: list[GradientEdge] = []
        self.needs_grad: list[bool] = []

    def forward(self, stand_ins: Tensors) -> tuple[Tensors, Tensors]:
        """The function's results, and what the backward half needs beside arguments."""
        self._stand_ins = list(stand_ins)
        inputs = _tracked(stand_ins)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        with torch.enable_grad(), hooks:
            results = list(self._function(*inputs))
        _regions.warn_of_lost_gradients("scan", results, inputs)
        self._inputs = [get_gradient_edge(x) if x.requires_grad else None for x in inputs]
        self.needs_grad = [result.requires_grad for result in results]
        self._results = [get_gradient_edge(r) for r in results if r.requires_grad]
        saved = self._saved
        self._stand_ins, self._saved, self._kept = [], [], []
        return results, saved

    def _pack(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """How the backward half finds the tensor."""
        tensor = tensor.detach()
        if not _XLAC._is_xla_tensor(tensor) or _XLAC._kind_of_data(tensor) == "array":
            return lambda: tensor  # the function took it from elsewhere
        alias = _XLAC._alias_id(tensor)
        for i, stand_in in enumerate(self._stand_ins[self._num_carried :]):
            if _XLAC._alias_id(stand_in) != alias:
                continue
            order = _permutation(tensor, stand_in)
            if order is not None:
                return lambda: self._arguments[i].permute(order)
        # A copy: the function may write to the tensor later.
        key = (alias, tensor._version, *_regions.type_of(tensor), tensor.storage_offset())
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._saved)
            self._saved.append(tensor.clone())
            self._kept.append(tensor)
        return lambda: self._handed_over[place]

    def _unpack(self, found: Callable[[], torch.Tensor]) -> torch.Tensor:
        return found()

    def backward(
        self, saved: Tensors, arguments: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Sequence[torch.Tensor | None]:
        """The gradients of the function's arguments `wanted`, given those of the results that have
        any."""
        self._handed_over, self._arguments = saved, arguments
        try:
            return torch.autograd.grad(
                self._results,
                [edge for edge in (self._inputs[i] for i in wanted) if edge is not None],
                list(grads),
                allow_unused=True,
                retain_graph=True,
            )
        finally:
            self._handed_over, self._arguments = [], []


class Partitioned:
    """The halves into which a partitioner of AOTAutograd divides the graph of both.

    Args:
        function: from flat tensors to flat tensors, all of them arguments.
        partition_fn: as `torch._functorch.partitioners.default_partition`.
        examples: tensors of the arguments' types.
    """

    def __init__(
        self, function: Function, partition_fn: Callable[..., Any], examples: Tensors
    ) -> None:
        from torch._functorch.aot_autograd import (  # type: ignore[attr-defined]
            aot_function,
            make_boxed_func,
        )

        graphs: list[torch.fx.GraphModule] = []

        def keep(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
            del example_inputs
            graphs.append(gm)
            return make_boxed_func(gm.forward)

        traced = aot_function(
            lambda *tensors: list(function(*tensors)),
            fw_compiler=keep,
            bw_compiler=keep,
            partition_fn=partition_fn,
        )
        inputs = _tracked(examples)
        with torch.enable_grad():
            try:
                results = traced(*inputs)
            except AssertionError as error:
                if "FakeTensor" not in str(error):
                    raise
                raise RuntimeError(
                    "scan: with a partition_fn of one's own, all tensors that the function takes "
                    f"must be arguments, parts of init or xs: {error}"
                ) from error
        self.needs_grad = [result.requires_grad for result in results]
        self._num_results = len(results)
        differentiable = [result for result in results if result.requires_grad]
        targets = [x for x in inputs if x.requires_grad]
        # Has the backward half compiled, which is to say kept.
        torch.autograd.grad(
            differentiable,
            targets,
            [torch.zeros_like(result) for result in differentiable],
            allow_unused=True,
        )
        if len(graphs) != 2:
            raise RuntimeError("scan: the partition_fn needs a function that has gradients")
        self._forward, self._backward = graphs

    def forward(self, stand_ins: Tensors) -> tuple[Tensors, Tensors]:
        with torch.no_grad():
            values = list(self._forward(*stand_ins))
        return values[: self._num_results], values[self._num_results :]

    def backward(
        self, saved: Tensors, arguments: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Sequence[torch.Tensor | None]:
        del arguments  # those that it needs are among `saved`
        with torch.no_grad():
            found = list(self._backward(*saved, *grads))
        return [found[i] for i in wanted]
