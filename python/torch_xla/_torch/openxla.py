"""The backends "openxla" and "openxla_eval" of `torch.compile`. `integration` has Dynamo import
this module in the place of PyTorch's, which registers backends of these names.

PyTorch's "openxla" is AOTAutograd around `core.dynamo_bridge`, and so is this one. But in inference
AOTAutograd mostly finds that a graph neither writes its arguments nor returns views; its wrappers
then pass arguments and results on, which takes longer than the launch. Such graphs are called
directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends import registry
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_xla._torch import dynamo_graphs
from torch_xla._torch.dynamo_graphs import Graph


def _program(model: torch.fx.GraphModule, keeps_views: bool) -> Graph:
    """The graph as a program, which is made of the first call's arguments."""
    graph: torch.fx.GraphModule | None = model
    program: Graph | None = None

    def call(*args: Any) -> Any:
        nonlocal graph, program
        source = graph  # another thread may be here too
        if source is not None:
            program = dynamo_graphs.extract_compiled_graph(source, args, keeps_views=keeps_views)
            graph = None
        assert program is not None
        return program(*args)

    return call


def openxla_eval(model: torch.fx.GraphModule, inputs: Sequence[Any]) -> Graph:
    """Compile a graph of Dynamo's without AOTAutograd: there are no gradients, and results share no
    memory with arguments."""
    return _program(model, keeps_views=True)


def _takes_and_gives_plain_tensors(model: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Not so: sequences of tensors, and subclasses that AOTAutograd takes apart."""
    values = (node.meta.get("example_value") for node in model.graph.nodes)
    return not any(isinstance(value, (list, tuple, dict)) for value in inputs) and not any(
        is_traceable_wrapper_subclass(value) for value in values
    )


def _has_nothing_around(graph: ViewAndMutationMeta) -> bool:
    """Whether AOTAutograd's wrappers of a graph without gradients pass on what they are given."""
    return graph.grad_enabled_mutation is None and not (
        graph.num_mutated_inp_runtime_indices
        or graph.num_mutated_graph_handled_indices
        or graph.num_outputs_aliased
        or graph.num_intermediate_bases
        or graph.num_graphsafe_rng_states
        or graph.is_rng_op_functionalized
        or graph.dynamic_outputs
        or graph.tokens
    )


def openxla(model: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Graph:
    """Compile a graph of Dynamo's, for inference or training."""
    direct: Graph | None = None

    def training(graph: torch.fx.GraphModule, graph_inputs: Sequence[Any]) -> Graph:
        return make_boxed_func(_program(graph, keeps_views=False))

    def inference(graph: torch.fx.GraphModule, graph_inputs: Sequence[Any]) -> Graph:
        nonlocal direct
        program = _program(graph, keeps_views=True)
        # A wrapper puts arguments together that occur twice, and adds parameters of the module.
        if len(graph_inputs) == len(inputs):
            direct = program
        return make_boxed_func(program)

    backend = aot_autograd(fw_compiler=training, inference_compiler=inference)
    wrapped = backend(model, inputs, **options)
    context = TracingContext.try_get()
    if (
        direct is not None
        and context is not None
        and context.fw_metadata is not None
        and not context.fakify_first_call
        and not torch._C._is_any_autocast_enabled()
        and _takes_and_gives_plain_tensors(model, inputs)
        and _has_nothing_around(context.fw_metadata)
    ):
        return direct
    return wrapped


for name, backend, tags in (
    ("openxla", openxla, ()),
    ("openxla_eval", openxla_eval, ("experimental",)),
):
    # Those of PyTorch, if its module was imported before.
    registry._COMPILER_FNS.pop(name, None)
    registry.register_backend(backend, name, tags)
