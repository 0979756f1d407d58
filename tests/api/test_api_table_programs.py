"""The rows of test_api_table.py for programs within programs: eager mode, loops and branches, pure
functions, operators in XLA's own operations, and the switches of the extension module. What they do
in full stands in test_loops.py, test_compile.py, test_xla_builder.py and test_dynamo.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_xla
import torch_xla.core.xla_builder as xb
import torch_xla.core.xla_op_registry as xor
import torch_xla.debug.metrics as met
import torch_xla.experimental as experimental
from torch_xla import _XLAC
from torch_xla._dynamo import dynamo_backend2
from torch_xla.core import dynamo_bridge
from torch_xla.experimental.assume_pure import (
    PureModule,
    assume_pure,
    assume_pure_torch,
    j2t_autograd,
)
from torch_xla.experimental.callback import on_ready_callback
from torch_xla.experimental.fori_loop import fori_loop, while_loop
from torch_xla.experimental.gradient_accumulation import gradient_accumulation
from torch_xla.experimental.gru import GRU
from torch_xla.experimental.scan import default_partition, scan
from torch_xla.experimental.scan_layers import scan_layers
from torch_xla.experimental.stablehlo_custom_call import place_to_device, place_to_host
from torch_xla.utils.buffer_donor_context import alias_with_buffer_donor_config
from torch_xla.utils.checkpoint import checkpoint


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes or (2,), device="xla")


def compiled_in_all_ways() -> bool:
    options = {
        "full_graph": True,
        "name": "f",
        "max_different_graphs": 2,
        "custom_compile_options": None,
        "dynamic": True,
    }
    wrapped = torch_xla.compile(lambda t: t + 1, **options)
    decorated = torch_xla.compile(**options)(lambda t: t + 1)
    with torch_xla.compile(**options):
        inside = ones() + 1
    return all(t.tolist() == [2, 2] for t in (wrapped(ones()), decorated(ones()), inside))


def compiled_by_dynamo(backend: Any) -> bool:
    torch.compiler.reset()
    try:
        function = torch.compile(lambda t: t * 3, backend=backend)
        return function(ones()).tolist() == [3, 3]
    finally:
        torch.compiler.reset()


def eager() -> bool:
    before = experimental.is_eager_mode()
    experimental.eager_mode(True)
    is_on = experimental.is_eager_mode()
    experimental.eager_mode(before)
    with experimental.eager_mode_context(True):
        return is_on and experimental.is_eager_mode()


def eager_metrics() -> bool:
    met.clear_all()
    torch_xla.settings.use_eager_debug_mode = True
    try:
        t = ones(1013)  # a size of its own, whose programs are new
        for _ in range(3):
            t = t + 1
        is_computed = _XLAC._kind_of_data(t) == "array"
    finally:
        torch_xla.settings.use_eager_debug_mode = False
        experimental.eager_mode(False)
    names = met.metric_names()
    return is_computed and "EagerOpCompileTime" in names and "EagerOpExecuteTime" in names


def options_set_and_cleared() -> bool:
    torch_xla.set_custom_compile_options({"xla_cpu_enable_fast_math": False})
    is_set = _XLAC._custom_compile_options() == {"xla_cpu_enable_fast_math": False}
    torch_xla.set_custom_compile_options({})
    return is_set and _XLAC._custom_compile_options() == {}


def called_back() -> bool:
    is_ready = threading.Event()
    on_ready_callback(ones() + 1, is_ready.set)
    return is_ready.wait(20)


def accumulated() -> bool:
    model = torch.nn.Linear(2, 1).to("xla")

    def step(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum()

    gradient_accumulation(step, (ones(3, 1, 2),), model)
    return model.weight.grad is not None and model.weight.grad.tolist() == [[3, 3]]


def ran_cached_graph() -> bool:
    """As the backend `openxla` of torch_xla did by hand."""
    x = ones()
    torch_xla.sync()
    out = [x * 5]
    ids, leaves = _XLAC._get_tensors_xla_device_data_node(out)
    is_found = ids == [_XLAC._xla_get_tensor_id(x)] and leaves[0].tolist() == [1, 1]
    graph_hash = _XLAC._get_graph_hash(out)
    _XLAC._xla_warm_up_cache(out, [])
    return is_found and _XLAC._run_cached_graph(graph_hash, [x + 1])[0].tolist() == [10, 10]


def lowered() -> bool:
    x = ones()
    torch_xla.sync()
    context = _XLAC.lowering.LoweringContext("f")
    context.build([x * 5])
    mapping = context.parameter_id_tensor_mapping()
    number = context.tensor_parameter_id(x)
    return (
        "HloModule" in context.hlo_text()
        and len(context.hlo()) > 0
        and mapping[number].tolist() == [1, 1]
    )


def donated() -> bool:
    given, kept = ones(64), ones(64)
    torch_xla.sync()
    is_marked = _XLAC._set_buffer_donation(given, True)
    with alias_with_buffer_donor_config(should_alias=True):
        result = given + kept
        torch_xla.sync(wait=True)
    memory = _XLAC._last_program_memory()
    return (
        is_marked
        and memory["alias_size_in_bytes"] == 64 * 4
        and result.sum().item() == 128
        and kept.sum().item() == 64
    )


def named() -> bool:
    torch_xla.settings.hlo_debug = True
    try:
        t = ones() * 7
        return _XLAC._set_xla_custom_op_name_prefix(t, "mine", 0) and "mine" in (
            _XLAC._get_xla_tensors_stablehlo([t])
        )
    finally:
        torch_xla.settings.hlo_debug = False


def baked() -> bool:
    """Numbers stay in the program: another value is another one."""
    _XLAC._set_xla_all_numbers_special_scalars(True)
    try:
        before = _XLAC._computation_stats()[0]
        for value in (3.5, 4.5, 5.5, 6.5):
            assert torch.full((2,), value, device="xla").tolist() == [value] * 2
        return _XLAC._computation_stats()[0] == before + 4
    finally:
        _XLAC._set_xla_all_numbers_special_scalars(False)


def refuses_dynamic() -> bool:
    try:
        _XLAC._xla_mark_dynamic(ones(), 0)
    except NotImplementedError:
        return True
    return False


def called_jax() -> bool:
    pytest.importorskip("jax")
    result = xb.call_jax(lambda t, by: t * by, (ones(),), {"by": 2}, name="f", override_hash="h")
    return result.tolist() == [2, 2]


def differentiated_jax() -> bool:
    pytest.importorskip("jax")
    x = ones().requires_grad_()
    j2t_autograd(lambda t: t * t)(x).sum().backward()
    return x.grad is not None and x.grad.tolist() == [2, 2]


SHAPE = xb.mkshape(xb.Type.F32, (2,))

ROWS: dict[str, Callable[[], Any]] = {
    "A1.compile": compiled_in_all_ways,
    "A1.set_custom_compile_options": options_set_and_cleared,
    "A1.torch.compile": lambda: compiled_by_dynamo("openxla"),
    "A1.dynamo_backend2": lambda: compiled_by_dynamo(dynamo_backend2.dynamo_backend),
    "A6.dynamo_bridge.extract_compiled_graph": lambda: (
        dynamo_bridge.extract_compiled_graph(torch.fx.symbolic_trace(torch.nn.ReLU()), (ones(),))(
            ones()
        ).tolist()
        == [1, 1]
    ),
    "A6.dynamo_bridge.GraphInputMatcher": lambda: (
        len(dynamo_bridge.GraphInputMatcher([0, -1], [ones()])([ones()])) == 2
    ),
    "A6.xla_op_registry.register": lambda: (
        xor.register("twice", lambda a, by=2: a * by)(ones(), by=3).tolist() == [3, 3]
    ),
    "A6.xla_builder.create_computation": lambda: (
        xb.create_computation("add", lambda a, b: a + b, (SHAPE, SHAPE))(
            xb.Op(ones()), xb.Op(ones())
        ).tensor.tolist()
        == [2, 2]
    ),
    "A6.xla_builder.create_placeholder_tensor": lambda: (
        xb.create_placeholder_tensor((2, 3), torch.bfloat16).shape == (2, 3)
    ),
    "A6.xla_builder.JaxCallable": lambda: xb.JaxCallable(len, name="f").name == "f",
    "A6.xla_builder.call_jax": called_jax,
    "A7.j2t_autograd": differentiated_jax,
    "A7.eager_mode": eager,
    "A7.scan": lambda: (
        scan(
            lambda c, x: (c + x, c), ones(2), ones(3, 2), partition_fn=default_partition,
            is_fn_pure=False,
        )[0].tolist()
        == [4, 4]
    ),
    "A7.scan_layers": lambda: (
        scan_layers(
            [torch.nn.Linear(2, 2).to("xla")] * 2, ones(1, 2), partition_fn=default_partition,
            is_layer_pure=False,
        ).shape
        == (1, 2)
    ),
    "A7.gru.GRU": lambda: GRU(2, 3).to("xla")(ones(4, 1, 2))[0].shape == (4, 1, 3),
    "A7.fori_loop": lambda: fori_loop(0, 3, lambda i, x: x + 1, ones()).tolist() == [4, 4],
    "A7.while_loop": lambda: (
        while_loop(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0, device="xla"),))[0].item()
        == 3
    ),
    "A7.torch.while_loop": lambda: (
        torch._higher_order_ops.while_loop(
            lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0, device="xla"),)
        )[0].item()
        == 3
    ),
    "A7.torch.cond": lambda: (
        torch.cond(ones(1).sum() > 0, lambda t: t + 1, lambda t: t - 1, (ones(),)).tolist()
        == [2, 2]
    ),
    "A7.gradient_accumulation": accumulated,
    "A7.assume_pure": lambda: (
        assume_pure(lambda t: t + 1, add_rng_seed_argument=False)(ones()).tolist() == [2, 2]
    ),
    "A7.PureModule": lambda: (
        PureModule(torch.nn.Linear(2, 1).to("xla"))(ones(1, 2)).shape == (1, 1)
    ),
    "A7.assume_pure_torch": lambda: (
        assume_pure_torch(lambda t: t + 1, use_cache=False)(ones()).tolist() == [2, 2]
    ),
    "A7.on_ready_callback": called_back,
    "A8.checkpoint": lambda: (
        checkpoint(torch.sin, ones().requires_grad_(), use_reentrant=True).shape == (2,)
    ),
    "A8.buffer_donor_context": donated,
    "A7.dynamo_set_buffer_donor_": lambda: (
        torch.ops.xla.dynamo_set_buffer_donor_(ones(), True).tolist() == [1, 1]
    ),
    "A7.place_to_host": lambda: place_to_device(place_to_host(ones())).tolist() == [1, 1],
    "A8._run_cached_graph": ran_cached_graph,
    "A8.LoweringContext": lowered,
    "A8._set_xla_custom_op_name_prefix": named,
    "A8._set_xla_all_numbers_special_scalars": baked,
    "A8._xla_mark_dynamic": refuses_dynamic,
    "A9.XLA_USE_EAGER_DEBUG_MODE": eager_metrics,
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_name_takes_its_documented_arguments(row):
    assert ROWS[row]()
