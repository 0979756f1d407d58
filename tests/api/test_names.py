"""Every public name of the last release of torch_xla (names/*.tsv) is here: it works with the
arguments that it had, or its use is an error that says why not and what to use."""

from __future__ import annotations

import ast
import collections
import importlib
import inspect
import pathlib
import subprocess
import sys
import types
from typing import Any, NamedTuple

import pytest
import torch
from clone import ROOT
from processes import run_in_process

import torch_xla
from torch_xla._moved_names import MOVED
from torch_xla._other_names import Refused
from torch_xla._refused_names import REFUSED


class Row(NamedTuple):
    module: str
    kind: str
    name: str
    arguments: str


LISTS = sorted((pathlib.Path(__file__).parent / "names").glob("*.tsv"))
ROWS = [Row(*line.split("\t")) for path in LISTS for line in path.read_text().splitlines()[1:]]
BY_MODULE: dict[str, list[Row]] = collections.defaultdict(list)
for row in ROWS:
    BY_MODULE[row.module].append(row)

# What takes other arguments, with the reason. An entry that is not needed is an error.
OTHER_ARGUMENTS = {
    "_dynamo.dynamo_bridge.GraphInputMatcher": "the positions of arguments are found beforehand",
    "core.xla_builder.Shape": "it is made of a type and sizes; mkshape and Shape.create make one",
    "core.xla_model.get_xla_supported_devices": "the kind of device stands first, as before 2.0",
    "distributed.fsdp.xla_fully_sharded_data_parallel.XlaFullyShardedDataParallel": (
        "what is said of exchanges alone is among the keyword arguments"
    ),
    "distributed.xla_backend.ProcessGroupXla": "c10d makes it, of one object of options",
    "distributed.xla_backend.ProcessGroupXla.monitored_barrier": "it is PyTorch's",
    "distributed.zero_redundancy_optimizer.ZeroRedundancyOptimizer": (
        "what is said of exchanges alone is among the keyword arguments"
    ),
    "experimental.distributed_checkpoint.planners.SPMDLoadPlanner.finish_plan": "it is PyTorch's",
    "experimental.distributed_checkpoint.planners.SPMDSavePlanner.set_up_planner": (
        "PyTorch passes what it knows of the storage, too"
    ),
    "experimental.gru.GRU": "it is torch.nn.GRU's, which takes them by *args",
    "experimental.quantized.xla_dequantize_per_tensor": (
        "the list has it twice; with an axis it is xla_dequantize_per_channel"
    ),
}
# What instances have and their class does not show.
OF_INSTANCES = {
    "core.xla_builder.Shape.dtype",
    "core.xla_builder.Shape.sizes",
    "distributed.fsdp.xla_fully_sharded_data_parallel.XlaFullyShardedDataParallel.module",
}


def resolved(row: Row) -> Any:
    found: Any = importlib.import_module(row.module)
    for part in row.name.split("."):
        found = getattr(found, part)
    return found


def short(row: Row) -> str:
    return f"{row.module}.{row.name}".removeprefix("torch_xla.")


# The list cuts longer ones off.
LONGEST = 240


def whole(arguments: str) -> str:
    """Without an argument that was cut off; there may be more then."""
    if len(arguments) < LONGEST:
        return arguments
    return arguments.rpartition(",")[0] + ", *args, **kwargs"


def differences(listed: ast.arguments, ours: inspect.Signature) -> list[str]:
    """How a call with listed arguments, by position or by name, would fail."""
    bound = ("self", "cls")
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [p for p in ours.parameters.values() if p.name not in bound]
    by_name = {p.name: p for p in parameters}
    kinds = {p.kind for p in parameters}
    positional = [a.arg for a in [*listed.posonlyargs, *listed.args] if a.arg not in bound]
    names = [*positional, *(a.arg for a in listed.kwonlyargs)]
    num_defaults = len(listed.defaults)
    optional = {*positional[len(positional) - num_defaults :]} if num_defaults else set()
    optional |= {
        a.arg for a, d in zip(listed.kwonlyargs, listed.kw_defaults, strict=True) if d is not None
    }
    found = []
    for place, name in enumerate(positional):
        takes_more = variable[0] in kinds and place >= len(parameters) - 1
        is_there = place < len(parameters) and parameters[place].name == name
        if not is_there and not takes_more:
            found.append(f"argument {place} is not {name}")
    for name in names:
        if name not in by_name and variable[1] not in kinds:
            found.append(f"takes no {name}")
        elif name in by_name and name in optional and by_name[name].default is inspect._empty:
            found.append(f"{name} has no default")
    for parameter in parameters:
        is_free = parameter.kind in variable or parameter.default is not inspect._empty
        if parameter.name not in names and not is_free and listed.vararg is None:
            found.append(f"needs {parameter.name} too")
    if listed.vararg and variable[0] not in kinds and listed.vararg.arg != "args":
        found.append(f"takes no *{listed.vararg.arg}")
    return found


@pytest.mark.parametrize("module", BY_MODULE)
def test_names_of_the_module_are_there(module):
    missing = []
    for row in BY_MODULE[module]:
        if short(row) in OF_INSTANCES:
            continue
        try:
            resolved(row)
        except AttributeError as error:
            missing.append(f"{short(row)}: {error}")
    assert missing == []


def test_instances_have_what_classes_do_not_show():
    import torch_xla.core.xla_builder as xb
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel

    shape = xb.mkshape(xb.Type.F32, (2, 3))
    assert (shape.dtype, shape.sizes) == ("f32", (2, 3))
    module = torch.nn.Linear(2, 2).to("xla")
    assert XlaFullyShardedDataParallel(module).module is module
    assert len(OF_INSTANCES) == 3


def test_functions_take_the_listed_arguments():
    found = collections.defaultdict(list)
    for row in ROWS:
        if row.kind not in ("def", "method", "class") or short(row) in OF_INSTANCES:
            continue
        thing = resolved(row)
        if isinstance(thing, Refused) or not callable(thing):  # takes anything; an attribute
            continue
        if row.kind == "class" and not row.arguments:
            continue  # the list does not say what it takes
        listed = ast.parse(f"def f({whole(row.arguments)}): pass").body[0].args
        try:
            ours = inspect.signature(thing)
        except ValueError:
            found[short(row)].append("has no signature")
            continue
        found[short(row)] += differences(listed, ours)
    unexpected = {name: why for name, why in found.items() if why and name not in OTHER_ARGUMENTS}
    assert unexpected == {}
    assert {name for name in OTHER_ARGUMENTS if not found[name]} == set()


def test_refused_names_say_why_and_what_to_use():
    for module, table in REFUSED.items():
        loaded = importlib.import_module(module)
        for names, why, instead in table:
            for name in names.split():
                refused = getattr(loaded, name)
                with pytest.raises(NotImplementedError) as caught:
                    refused(1, of=2)
                assert str(caught.value) == f"{module}.{name} is not here: {why}; {instead}"
                with pytest.raises(NotImplementedError, match=rf"{name}\.method is not here"):
                    refused.method()
                assert not isinstance(1, refused)
                with pytest.raises(NotImplementedError, match="is not here"):
                    types.new_class("Derived", (refused,))
        with pytest.raises(AttributeError):
            loaded.no_such_name  # noqa: B018


def test_refused_names_are_names_of_the_list():
    """A name is refused for who knows it from there."""
    listed = {(row.module, row.name) for row in ROWS}
    for module, table in REFUSED.items():
        for names, _, _ in table:
            for name in names.split():
                known = {module, *(old for old, sources in MOVED.items() if module in sources)}
                is_listed = any((place, name) in listed for place in known)
                assert is_listed or module in ("torch_xla.xpu",) or name == "PyTreeA", (
                    module,
                    name,
                )


def test_moved_modules_have_the_names_of_others():
    for module, sources in MOVED.items():
        loaded = importlib.import_module(module)
        assert importlib.util.find_spec(module) is not None
        for source in sources:
            assert sources[0] in loaded.__doc__
            known = [name for name in vars(importlib.import_module(source)) if name[0] != "_"]
            refused = [name for names, _, _ in REFUSED.get(source, ()) for name in names.split()]
            assert hasattr(loaded, (known or refused)[0])


def test_backend_registers_itself_by_its_old_name():
    program = """
        import torch, torch.distributed as dist, torch_xla.experimental.pjrt_backend
        dist.init_process_group("xla", init_method="pjrt://")
        x = torch.ones(2, device="xla")
        dist.all_reduce(x)
        print(x.tolist())
        """
    assert run_in_process(program) == "[1.0, 1.0]"


def test_modules_of_older_releases_are_imported():
    from torch_xla.experimental import pjrt, pjrt_backend, tpu

    assert pjrt.using_pjrt() and pjrt.device_type() == torch_xla.runtime.device_type()
    assert pjrt_backend.ProcessGroupXla.__name__ == "ProcessGroupXla"
    assert tpu.num_available_chips() == torch_xla._internal.tpu.num_available_chips()
    assert torch_xla.tpu.MeshShape.from_string("2,2,1").size == 4


def test_pages_are_up_to_date():
    script = ROOT / "tools" / "names_pages.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
