"""What a user sees of recording, compiling and running: graphs, explanations, guards."""

from __future__ import annotations

import inspect
import re
import warnings

import pytest
import torch
from counts import counted
from processes import run_in_process
from with_settings import setting

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import _XLAC
from torch_xla._causes import because
from torch_xla.debug import graph_saver, metrics
from torch_xla.debug.guards import transfer_guard

HERE = __file__


def line() -> int:
    return inspect.currentframe().f_back.f_lineno


@pytest.fixture
def explained(tmp_path):
    """Reads what PT_XLA_DEBUG wrote since the last call."""
    path = tmp_path / "explained"
    path.touch()
    seen = 0

    def read() -> str:
        nonlocal seen
        text = path.read_text()
        new, seen = text[seen:], len(text)
        assert all(one.startswith("pt-xla-profiler: ") for one in new.splitlines())
        return new.replace("pt-xla-profiler: ", "")

    torch_xla.runtime.clear_computation_cache()
    with setting(pt_xla_debug_file=str(path), pt_xla_debug=True):
        yield read


def why(text: str) -> str:
    [reason] = re.findall(r"Compiled Anew Because\n  (.*)\n", text)
    return reason


def test_text_of_a_graph(device):
    x = torch.ones(2, 3).to(device)
    with setting(ir_debug=True):
        y = (x + x).relu()
        where = f"{HERE}:{line() - 1}"
    text = _XLAC._graph_of([y], "text")
    assert text.splitlines() == [
        "IR {",
        "  %0 = f32[2,3] xla::device_data()",
        f"  %1 = f32[2,3] aten::add.Tensor(self=%0, other=%0, alpha=1), location={where}",
        f"  %2 = f32[2,3] aten::relu(self=%1), location={where}, ROOT=0",
        "}",
    ]


def test_drawing_of_a_graph(device):
    x = torch.ones(2).to(device)
    dot = _XLAC._graph_of([x + x], "dot")
    assert dot.startswith("digraph G {") and dot.count("->") == 2
    assert "aten::add.Tensor" in dot


def test_programs_of_a_graph(device):
    y = torch.ones(2).to(device) + 1
    assert '"stablehlo.add"' in _XLAC._graph_of([y], "stablehlo")
    with counted() as counts:
        hlo = _XLAC._graph_of([y + 1], "hlo")
    assert hlo.startswith("HloModule") and " add(" in hlo
    assert counts.executed == 0
    with pytest.raises(ValueError, match="must be text, dot, hlo or stablehlo, got 'xml'"):
        _XLAC._graph_of([y], "xml")


def test_looking_at_a_graph_runs_nothing(device):
    y = torch.ones(2).to(device) + 1
    with counted() as counts:
        z = y * 2
        for format in ("text", "dot", "stablehlo"):
            _XLAC._graph_of([z], format)
        assert _XLAC._graph_key_of([z]) == _XLAC._graph_key_of([y * 2])
        assert _XLAC._graph_key_of([z]) != _XLAC._graph_key_of([y * y])
    assert counts.executed == 0
    assert "IR: aten::mul.Tensor" in _XLAC._get_xla_tensor_debug_info(z)
    assert z.tolist() == [4, 4]


def test_graph_of_tensors_that_are_none_of_ours(device):
    with pytest.raises(RuntimeError, match="not an XLA tensor"):
        _XLAC._graph_of([torch.ones(2)], "text")
    with pytest.raises(RuntimeError, match="at least one"):
        _XLAC._graph_of([], "text")


def test_lines_in_metadata_leave_the_key_alone(device):
    x = torch.ones(2).to(device)

    def step():
        y = x.sin() * x
        torch_xla.sync()
        return y

    kept = [step()]
    torch_xla.sync()
    with counted() as counts, setting(hlo_debug=True):
        kept.append(step())
        text = _XLAC._graph_of([x.sin()], "stablehlo")
    assert counts.compiled == 0 and len(kept) == 2
    assert f'loc("aten::sin"("{HERE}":{line() - 2}:0))' in text


def test_operations_of_backward_know_the_line_that_asked(device):
    with setting(hlo_debug=True):
        x = torch.ones(3, device=device, requires_grad=True)
        y = x.tan().sum()
        y.backward()
        asked_at = line() - 1
        text = _XLAC._graph_of([x.grad], "stablehlo")
    assert f'"{HERE}":{asked_at}:0' in text


def test_scopes_name_operations(device):
    with setting(hlo_debug=True):
        before = _XLAC._set_scope("encoder")
        y = torch.ones(2, device=device) + 1
        _XLAC._set_scope(before)
    assert 'loc("encoder/aten::add.Tensor"' in lowered_with_lines(y)


def lowered_with_lines(tensor):
    with setting(hlo_debug=True):
        return _XLAC._graph_of([tensor], "stablehlo")


@pytest.mark.parametrize("format", ["text", "dot", "hlo", "stablehlo"])
def test_every_barrier_is_saved(device, tmp_path, format):
    expected = {"text": "IR {", "dot": "digraph", "hlo": "HloModule", "stablehlo": "module @"}
    path = tmp_path / "graphs"
    with setting(save_tensors_file=str(path), save_tensors_fmt=format):
        kept = torch.ones(2, device=device) * 3
        torch_xla.sync()
        (kept + 1).tolist()
    text = (tmp_path / "graphs.0").read_text()
    assert text.count("## BEGIN_GRAPH") == text.count("## END_GRAPH") == 2
    assert text.count(expected[format]) == 2 and HERE in text
    assert "Graph Hash: " in text and "[user sync]" in text and "[a value was read]" in text


def test_first_compilation_is_explained(device, explained):
    kept = torch.ones(3, device=device) * 7
    torch_xla.sync()
    text = explained()
    assert "Compilation Analysis" in text and "Execution Analysis" in text
    assert "Compilation Cause\n  user sync\n" in text
    assert "Number of Graph Outputs: 1" in text and "temporary" in text
    assert f"test_first_compilation_is_explained ({HERE}:{line() - 5})" in text
    torch_xla.sync()
    kept = kept * 7
    explained()
    torch_xla.sync()
    assert kept.tolist() == [49] * 3


def test_found_program_is_explained_as_an_execution_alone(device, explained):
    kept = []
    for _ in range(2):
        explained()
        kept.append(torch.ones(3).to(device) * 7)
        torch_xla.sync()
    text = explained()
    assert "Execution Analysis" in text and "Compilation Analysis" not in text


def test_level_one_explains_compilations_alone(device, explained):
    with setting(pt_xla_debug_level=1):
        kept = torch.ones(3, device=device) * 9
        torch_xla.sync()
    text = explained()
    assert "Compilation Analysis" in text and "Execution Analysis" not in text
    assert kept.shape == (3,)


def test_another_shape_is_named_with_its_line(device, explained):
    def step(size):
        batch = torch.ones(size).to(device)
        result = batch.exp()
        torch_xla.sync()
        return result

    where = f"{HERE}:{step.__code__.co_firstlineno + 2}"
    step((4, 2))
    explained()
    step((3, 2))
    assert why(explained()).endswith(f"aten::exp ({where}): 'self' is f32[3,2], was f32[4,2]")


def test_another_dtype_or_constant_or_operator_is_named(device, explained):
    x = torch.rand(4, 4).to(device)
    torch_xla.sync()

    def reason(function):
        kept = function()
        torch_xla.sync()
        del kept
        return why(explained())

    reason(lambda: x.sum(0))
    assert "'dim' is [1], was [0]" in reason(lambda: x.sum(1))
    assert reason(lambda: x.tanh()) == "no graph like it was compiled before"
    low = x.bfloat16()
    torch_xla.sync()
    explained()
    assert "'self' is bf16[4,4], was f32[4,4]" in reason(lambda: low.sum(1))


def test_more_operations_and_other_live_tensors_are_named(device, explained):
    x = torch.rand(4).to(device)
    torch_xla.sync()

    def run(function):
        kept = function()
        torch_xla.sync()
        del kept
        return why(explained())

    run(lambda: x.sin())
    assert "1 operations more, the first aten::cos" in run(lambda: x.sin().cos())

    def both():
        y = x.sin()
        return y, y.cos()

    assert "2 tensors are alive when it runs, were 1" in run(both)


def test_a_dropped_program_and_changed_options_are_named(device, explained):
    x = torch.rand(4).to(device)

    def run():
        kept = x.tan()
        torch_xla.sync()
        del kept
        return why(explained())

    run()
    torch_xla.runtime.clear_computation_cache()
    assert "dropped from the cache" in run()
    with setting(xla_flags="--xla_cpu_enable_fast_math=false"):
        assert "the compiler's options changed" in run()


def test_a_read_between_barriers_is_unexpected(device, explained):
    x = torch.rand(4).to(device)
    (x + 1).sum().item()
    text = explained()
    assert "Unexpected Execution Analysis" in text
    assert f"test_a_read_between_barriers_is_unexpected ({HERE}:{line() - 3})" in text


def test_cause_can_be_given(device, explained):
    kept = torch.ones(2, device=device) * 5
    with because("end of a test"):
        torch_xla.sync()
    assert "Cause\n  end of a test\n" in explained() and kept.shape == (2,)


def told_about_steps(body: str, tmp_path) -> str:
    """What is said of 30 steps, each with a barrier at its end."""
    code = f"""
        import torch, torch_xla
        for step in range(30):
            {body}
            torch_xla.sync()
            kept = None
        """
    path = tmp_path / "explained"
    run_in_process(code, PT_XLA_DEBUG="1", PT_XLA_DEBUG_FILE=str(path))
    return path.read_text()


def test_compiling_in_every_step_is_told(tmp_path):
    text = told_about_steps('kept = torch.ones(3 * step + 1, device="xla")', tmp_path)
    assert text.count("CompileTime too frequent: 1 per step") == 1
    assert "TransferFromDeviceTime too frequent" not in text


def test_reading_in_every_step_is_told(tmp_path):
    text = told_about_steps('torch.ones(3, device="xla").sum().item()', tmp_path)
    assert text.count("TransferFromDeviceTime too frequent: 1 per step") == 1
    assert "CompileTime too frequent" not in text


def test_nothing_is_told_by_default():
    code = """
        import torch, torch_xla, sys
        x = torch.ones(3, device="xla") * 2
        torch_xla.sync(wait=True)
        print(x.tolist())
        """
    assert run_in_process(code) == "[2.0, 2.0, 2.0]"


def test_environment_turns_explanations_on(tmp_path):
    path = tmp_path / "explained"
    code = """
        import torch, torch_xla
        x = torch.ones(3, device="xla") * 2
        torch_xla.sync()
        """
    run_in_process(code, PT_XLA_DEBUG="1", PT_XLA_DEBUG_FILE=str(path))
    assert "Compilation Analysis" in path.read_text() and "the first graph" in path.read_text()


def test_lines_in_notebooks_are_those_of_cells(tmp_path):
    """IPython stands for itself: a file of its name runs a cell whose file is a kernel's."""
    core = tmp_path / "IPython" / "core"
    core.mkdir(parents=True)
    (core / "interactiveshell.py").write_text("def run_code(code):\n    exec(code, {})\n")
    (tmp_path / "IPython" / "__init__.py").write_text(
        "class shell:\n    class compile:\n        _filename_map = {'/tmp/ipykernel_7/1.py': 3}\n"
        "def get_ipython():\n    return shell\n"
    )
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import torch, torch_xla
        from IPython.core.interactiveshell import run_code
        for name in ("1", "2"):
            cell = "import torch\\nx = torch.ones(3, device='xla')\\nprint(x.sum().item())"
            run_code(compile(cell, f"/tmp/ipykernel_7/{name}.py", "exec"))
        """
    path = tmp_path / "explained"
    run_in_process(code, str(tmp_path), PT_XLA_DEBUG="1", PT_XLA_DEBUG_FILE=str(path))
    text = path.read_text()
    assert "In[3]:3" in text
    assert "/tmp/ipykernel_7/2.py:3" in text  # a cell that IPython does not know
    assert "interactiveshell" not in text and "<string>" not in text


def test_warnings_name_no_folder_of_the_build(device):
    code = """
        import warnings, torch, torch_xla
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.ones(3, device="xla").nonzero()
        print(caught[0].message)
        """
    assert "(Triggered internally at src/aten/dynamic_shapes.cpp:" in run_in_process(code)


def test_metrics_file(device, tmp_path):
    path = tmp_path / "metrics"
    with setting(metrics_file=str(path)):
        kept = torch.ones(3, device=device)
        torch_xla.sync()
    assert "Counter: MarkStep" in path.read_text() and kept.shape == (3,)


def test_transfer_guard_forbids_reads(device):
    x = torch.ones(2, 3, device=device)
    with transfer_guard("forbid"):
        where = f"{HERE}:{line() + 2}"
        with pytest.raises(RuntimeError, match="forbids") as caught:
            x.sum().item()
        y = x * 2  # recording is no transfer
        torch_xla.sync()
    assert f"the host reads a tensor f32[] at {where.split(':')[0]}" in str(caught.value)
    assert y.sum().item() == 12
    with pytest.raises(ValueError, match="allow, log, forbid"), transfer_guard("maybe"):
        pass


def test_transfer_guard_logs_reads(device, capfd):
    x = torch.ones(2, 3, device=device)
    with transfer_guard("log"):
        x.cpu()
    assert f"the host reads a tensor f32[2,3] at {HERE}:{line() - 1}" in capfd.readouterr().err
    x.cpu()
    assert "reads" not in capfd.readouterr().err


def test_a_graph_without_barrier_is_warned_about_once():
    code = """
        import warnings, torch, torch_xla
        x = torch.ones(3, device="xla")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(5000):
                x = x + 1
        print([str(w.message)[:42] for w in caught])
        """
    told = run_in_process(code, XLA_GRAPH_SIZE_WARNING="3000")
    assert told == "['3072 operations were recorded on this devi']"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_in_process(code, XLA_GRAPH_SIZE_WARNING="0") == "[]"


def test_graph_files(device, tmp_path):
    y = torch.ones(2).to(device) + 1
    graph_saver.save_tensors_graph(str(tmp_path), "graph", [y])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "graph.dot",
        "graph.hlo",
        "graph.txt",
    ]


def test_noting_lines_costs_no_program(device):
    metrics.clear_all()
    with setting(ir_debug=True), counted() as counts:
        x = torch.ones(2, device=device)
        for _ in range(10):
            x = x + 1
        torch_xla.sync()
    assert counts.executed == 1 and x.tolist() == [11, 11]


def test_an_operator_without_lowering_is_told(tmp_path):
    path = tmp_path / "explained"
    code = """
        import warnings, torch, torch_xla
        warnings.simplefilter("ignore")
        for _ in range(2):
            torch._compute_linear_combination(*(torch.ones(2, 2, device="xla"),) * 2)
        """
    run_in_process(code, PT_XLA_DEBUG="1", PT_XLA_DEBUG_FILE=str(path))
    [told] = re.findall(".*is not lowered.*", path.read_text())
    expected = "aten::_compute_linear_combination is not lowered: it runs on the CPU, first at "
    assert f"{expected}<string>:5" in told


def test_lines_in_metadata_leave_the_disk_cache_alone(tmp_path):
    code = """
        import torch, torch_xla
        from torch_xla.debug import metrics
        x = torch.ones(3, device="xla").sin() * 5
        torch_xla.sync()
        print(metrics.counter_value("PersistentCacheHit"), metrics.counter_value("UncachedCompile"))
        """
    cache = {"XLA_PERSISTENT_CACHE": "1", "XLA_PERSISTENT_CACHE_PATH": str(tmp_path)}
    assert run_in_process(code, **cache) == "None 1"
    assert run_in_process(code, XLA_HLO_DEBUG="1", **cache) == "1 None"


def unknown_call():
    from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call

    return stablehlo_custom_call(
        [torch.ones(2, device="xla")], "nobody.knows_this", [[2]], [torch.float32]
    )


def test_program_that_cannot_be_compiled_is_shown(tmp_path):
    where = tmp_path / "failed.mlir"
    with (
        setting(save_hlo_file=str(where), dump_hlo_graph=True, dump_fatal_stack=True),
        pytest.raises(RuntimeError, match=r"nobody\.knows_this") as caught,
    ):
        unknown_call().tolist()
    text = str(caught.value)
    assert f"The program was written to {where}" in text
    assert "The graph:\nIR {" in text
    assert "The Python stack:\n  test_program_that_cannot_be_compiled_is_shown" in text
    assert 'call_target_name = "nobody.knows_this"' in where.read_text()
    with pytest.raises(RuntimeError) as plain:
        unknown_call().tolist()
    assert "The graph" not in str(plain.value)


def test_optimized_program_is_shown_when_asked_for():
    x = torch.ones(3, device="xla")
    assert "is_scheduled=true" not in _XLAC._get_xla_tensors_hlo([x * 2 + 1])
    with setting(dump_post_optimizations=True):
        assert "is_scheduled=true" in _XLAC._get_xla_tensors_hlo([x * 2 + 1])


def test_early_sync_runs_what_was_recorded_beside():
    x, other = torch.ones(3, device="xla"), torch.ones(4, device="xla")
    torch_xla.sync()
    for names, kind in (("", "pending"), ("nonzero:early_sync", "array")):
        beside = other * 3
        with setting(experimental=names), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.nonzero(x)
        assert _XLAC._kind_of_data(beside) == kind


def test_many_kinds_of_calls_are_told_once():
    code = """
import os, torch, torch_xla
os.dup2(1, 2)
for size in range(1, 40):
    torch.zeros(size, device="xla").sin()
"""
    told = "for more than 30 different calls (XLA_IR_SHAPE_CACHE_SIZE)"
    assert run_in_process(code, XLA_IR_SHAPE_CACHE_SIZE="30").count(told) == 1
    assert told not in run_in_process(code)


def test_barriers_of_the_package_say_what_they_are(device, explained):
    def cause_of(run):
        kept = torch.rand(2).to(device) * 3
        result = run()
        text = explained()
        assert kept.shape == (2,)
        del kept, result
        return text

    def step():
        with torch_xla.step():
            pass

    def optimize():
        weight = torch.nn.Parameter(torch.ones(2, device=device))
        weight.grad = torch.ones(2, device=device)
        xm.optimizer_step(torch.optim.SGD([weight], lr=1.0), barrier=True)

    compiled = torch_xla.compile(lambda: torch.ones(2, device=device) * 7, name="seven")
    assert "Cause\n  beginning of a torch_xla.step\n" in cause_of(step)
    assert "Cause\n  xm.optimizer_step with barrier=True\n" in cause_of(optimize)
    text = cause_of(compiled)
    assert "Cause\n  before torch_xla.compile of seven\n" in text
    assert "Cause\n  torch_xla.compile of seven\n" in text


def test_graphs_of_torch_compile_are_no_surprise(device, explained):
    x = torch.ones(3, device=device)
    torch_xla.sync()
    torch.compiler.reset()
    torch.compile(lambda t: t * 2 + 1, backend="openxla")(x)
    text = explained()
    assert "Cause\n  a graph of torch.compile was called\n" in text
    assert "Unexpected" not in text
    torch.compiler.reset()


def test_explanation_of_numbers_that_part(device, explained):
    x, y = torch.ones(3).to(device), torch.ones(3).to(device)
    for first, second in ((0.5, 0.5), (0.5, 0.25)):
        results = x * first, y * second
        torch_xla.sync()
        text = explained()
        del results
    assert "numbers that were equal differ; they are data of their own" in why(text)
