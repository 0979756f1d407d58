"""The rows of test_api_table.py for looking at programs, saving and exporting them: every name with
its documented arguments. What they do in full stands in test_debugging.py, test_profiler.py,
test_serialization.py, test_stablehlo.py and test_memory.py."""

from __future__ import annotations

import io
import pathlib
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
from torch_xla import _XLAC
from torch_xla.debug import graph_saver, metrics_saver
from torch_xla.experimental.mark_pattern_utils import StableHLOCompositeBuilder
from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call
from torch_xla.stablehlo import (
    InputLocation,
    StableHLOExportOptions,
    StableHLOFunctionMeta,
    StableHLOGraphModule,
    VariableSignature,
    VariableType,
    exported_program_to_stablehlo,
    save_as_stablehlo,
    save_torch_model_as_stablehlo,
)
from torch_xla.utils import serialization


def ones(*size: int) -> torch.Tensor:
    return torch.ones(*(size or (2,)), device="xla")


def folder() -> pathlib.Path:
    return pathlib.Path(tempfile.mkdtemp())


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))


def saved(save: Callable[..., Any], **arguments: Any) -> bool:
    buffer = io.BytesIO()
    save({"a": ones()}, buffer, **arguments)
    buffer.seek(0)
    return torch.load(buffer)["a"].tolist() == [1, 1]


def streamed() -> bool:
    path = folder() / "c"
    serialization.save({"a": ones()}, path, master_only=True, global_master=False)
    return serialization.load(path)["a"].tolist() == [1, 1]


def traced() -> bool:
    xp.start_trace(str(folder()))
    return pathlib.Path(xp.stop_trace()).is_dir()


def served(trace: Callable[..., Any]) -> bool:
    server = xp.start_server(0, only_on_master=True)
    where = folder()
    arguments = {
        "duration_ms": 50,
        "num_tracing_attempts": 1,
        "host_tracer_level": 2,
        "device_tracer_level": 1,
        "delay_ms": 0,
        "timeout_s": 120,
        "interval_s": 5,
    }
    address = f"localhost:{server.port}"
    if trace is xp.trace_detached:
        thread = trace(address, str(where), **arguments)
    else:
        thread = threading.Thread(target=trace, args=(address, str(where)), kwargs=arguments)
        thread.start()
    while thread.is_alive():
        with xp.Trace("busy"):
            ones().tolist()
    server.stop()
    return any(where.rglob("*.xplane.pb"))


def entered(context: Any) -> bool:
    with context:
        kept = ones()
    return kept.tolist() == [1, 1]


def written(save: Callable[..., Any], name: str, *arguments: Any) -> bool:
    where = folder()
    save(str(where) if name else str(where / "m"), *arguments)
    return any(where.iterdir())


ROWS: dict[str, Callable[[], Any]] = {
    "A1.save_as_stablehlo": lambda: torch_xla.save_as_stablehlo is save_as_stablehlo,
    "A1.save_torch_model_as_stablehlo": lambda: (
        torch_xla.save_torch_model_as_stablehlo is save_torch_model_as_stablehlo
    ),
    "A2.save": lambda: saved(xm.save, master_only=True, global_master=False),
    "A2.get_stablehlo": lambda: (
        "stablehlo" in xm.get_stablehlo(tensors=[ones()]) and xm.get_stablehlo() is not None
    ),
    "A2.get_stablehlo_bytecode": lambda: len(xm.get_stablehlo_bytecode(tensors=[ones()])) > 0,
    "A5.metrics_saver": lambda: written(metrics_saver.save_metrics, ""),
    "A5.graph_saver": lambda: written(graph_saver.save_tensors_graph, "g", "g", [ones()]),
    "A5.profiler.start_server": lambda: served(xp.trace_detached),
    "A5.profiler.trace": lambda: served(xp.trace),
    "A5.profiler.Trace": lambda: entered(xp.Trace("name", batch=1)),
    "A5.profiler.StepTrace": lambda: entered(xp.StepTrace("name", step_num=1)),
    "A5.profiler.trace_me": lambda: xp.trace_me("scope")(lambda x: x + 1)(1) == 2,
    "A5.profiler.start_trace": traced,
    "A7.stablehlo_custom_call": lambda: (
        stablehlo_custom_call(
            [ones()], "a.b", [[3]], [torch.float32], False, "", 0, frontend_attributes=None
        ).shape
        == (3,)
    ),
    "A7.StableHLOCompositeBuilder": lambda: (
        StableHLOCompositeBuilder("a.b", {"x": 1}, skip_inlining=False).mark_inputs(ones()).tolist()
        == [1, 1]
    ),
    "A8.exported_program_to_stablehlo": lambda: (
        exported_program_to_stablehlo(exported(), options=None)
        .evaluate([torch.ones(1, 2)])[0]
        .shape
        == (1, 2)
    ),
    "A8.StableHLOExportOptions": lambda: (
        StableHLOExportOptions(
            include_human_readable_text=True,
            override_tracing_arguments=None,
            override_tracing_kwargs=None,
            save_weights=True,
            inline_all_constant=True,
            export_weights=True,
            custom_ops_allowed_in_graph=set(),
            export_node_metadata=False,
        )
        == StableHLOExportOptions()
    ),
    "A8.save_as_stablehlo": lambda: written(
        lambda d, p: save_as_stablehlo(p, d, options=None), "d", exported()
    ),
    "A8.StableHLOGraphModule": lambda: all(
        hasattr(StableHLOGraphModule, name)
        for name in ("evaluate", "get_stablehlo_text", "get_stablehlo_bytecode", "save", "load")
    ),
    "A8.StableHLOFunctionMeta": lambda: (
        StableHLOFunctionMeta(
            name="f",
            stablehlo_version="1.0.0",
            input_signature=[VariableSignature(shape=[2], dtype="float32", dynamic_dims=[])],
            output_signature=[],
            input_locations=[InputLocation(type_=VariableType.INPUT_ARG, position=0, name="")],
        ).name
        == "f"
    ),
    "A8.serialization": streamed,
    "A8.serialization.TensorReference": lambda: serialization.TensorReference(3).tid == 3,
    "A8._get_xla_tensors_text": lambda: _XLAC._get_xla_tensors_text([ones()]).startswith("IR {"),
    "A8._get_xla_tensors_hlo": lambda: "HloModule" in _XLAC._get_xla_tensors_hlo([ones()]),
    "A8._get_xla_tensors_dot": lambda: "digraph" in _XLAC._get_xla_tensors_dot([ones()]),
    "A8._get_xla_tensor_debug_info": lambda: "f32[2]" in _XLAC._get_xla_tensor_debug_info(ones()),
    "A8._get_xla_sharding_spec": lambda: _XLAC._get_xla_sharding_spec(ones()) == "",
    "A8._get_graph_hash": lambda: (
        _XLAC._get_graph_hash([ones()]) == _XLAC._get_graph_hash([ones()])
    ),
    "A8._xla_sync_multi": lambda: (
        _XLAC._xla_sync_multi([ones()], devices=[], wait=True, sync_xla_data=True) is None
    ),
    "A8._xla_step_marker": lambda: (
        _XLAC._xla_step_marker("xla:0", [], wait=True, reset_scope=True) is None
    ),
    "A8._xla_warm_up_cache": lambda: _XLAC._xla_warm_up_cache([ones()], []) is None,
    "A8._xla_get_tensor_id": lambda: _XLAC._xla_get_tensor_id(ones()) > 0,
}


@pytest.mark.parametrize("row", ROWS)
def test_name_takes_its_documented_arguments(row):
    assert ROWS[row]()
