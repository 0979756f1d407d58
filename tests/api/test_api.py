"""The names that programs import, and what they do for one replica on one device."""

from __future__ import annotations

import collections
import importlib
import importlib.metadata
import io
import threading
import tomllib

import pytest
import torch
from clone import ROOT
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla import _built_for
from torch_xla.debug import metrics
from torch_xla.utils.utils import SampleGenerator

NAMES = {
    "torch_xla": """
        device devices real_devices device_count sync step manual_seed settings runtime __version__
        """,
    "torch_xla.core.xla_model": """
        xla_device get_xla_supported_devices xrt_world_size get_ordinal get_local_ordinal
        is_master_ordinal master_print mark_step optimizer_step reduce_gradients save rendezvous
        add_step_closure wait_device_ops set_rng_state get_rng_state fork_rng get_memory_info
        send_cpu_data_to_device is_xla_tensor unlazy check_view_sharing xla_real_devices
        xla_device_hw xla_device_kind RateTracker _fetch_gradients _maybe_convert_to_cpu
        _run_step_closures parse_xla_device
        """,
    "torch_xla.runtime": """
        set_device_type device_type world_size global_ordinal local_ordinal process_index
        process_count local_process_count host_index global_device_count local_device_count
        addressable_device_count global_runtime_device_count addressable_runtime_device_count
        runtime_device_attributes global_runtime_device_attributes is_spmd
        get_num_cached_compilation_graph clear_computation_cache is_bf16_supported get_master_ip
        using_pjrt xla_device
        """,
    "torch_xla.debug.metrics": """
        metrics_report short_metrics_report counter_names counter_value metric_names metric_data
        clear_counters clear_metrics clear_all executed_fallback_ops
        """,
    "torch_xla.core.xla_env_vars": "PJRT_DEVICE XLA_NO_SPECIAL_SCALARS",
    "torch_xla.utils.utils": "SampleGenerator",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_are_there(module):
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert torch_xla.__version__ == _built_for.VERSION == project["version"]


def test_version_of_the_import_name_is_that_of_the_distribution():
    """Programs ask for it before they import anything, as Lightning and diffusers do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in (project["name"], "torch_xla"):
        assert importlib.metadata.version(name) == project["version"]
    assert project["name"] in importlib.metadata.packages_distributions()["torch_xla"]


def test_xla_device(device):
    assert xm.xla_device() == xm.xla_device(0) == xr.xla_device() == device
    assert xm.xla_device(devkind=xr.device_type()) == device
    with pytest.raises(RuntimeError, match="kind ABACUS"):
        xm.xla_device(devkind="ABACUS")
    with pytest.raises(RuntimeError, match="does not exist"):
        xm.xla_device(99)


def test_supported_devices(device):
    every = xm.get_xla_supported_devices()
    assert every[0] == str(device) and len(every) == torch_xla.device_count()
    assert xm.get_xla_supported_devices(max_devices=1) == ["xla:0"]
    assert xm.get_xla_supported_devices(1) == ["xla:0"]
    assert xm.get_xla_supported_devices(xr.device_type(), 1) == ["xla:0"]
    assert xm.get_xla_supported_devices("ABACUS") == []


def test_hardware_of_a_device(device):
    assert xm.xla_device_hw(device) == xr.device_type() == xm.xla_device_hw("xla:0")
    assert xm.xla_device_hw("cpu") == "CPU"
    assert xm.xla_real_devices() == torch_xla.real_devices()
    assert xm.xla_real_devices([device]) == [f"{xr.device_type()}:0"]
    assert xm.xla_device_kind(device) == torch.xla.get_device_name()
    assert xm.parse_xla_device("xla:3") == ("xla", 3)
    assert xm.parse_xla_device("CPU:0") == ("CPU", 0)
    assert xm.parse_xla_device("nothing") is None
    assert xr.runtime_device_attributes("xla:0")["name"] == f"{xr.device_type()}:0"
    assert len(xr.global_runtime_device_attributes()) == torch_xla.device_count()
    with pytest.raises(ValueError, match="expected an xla device"):
        xm.xla_device_kind(torch.device("cpu"))


def test_one_replica(capsys):
    assert xm.xrt_world_size() == xr.world_size() == xr.process_count() == 1
    assert xm.get_ordinal() == xr.global_ordinal() == xr.process_index() == 0
    assert xm.get_local_ordinal() == xr.local_ordinal() == xr.host_index() == 0
    assert xm.is_master_ordinal() and xm.is_master_ordinal(local=False)
    assert xm.rendezvous("tag", b"payload") == [b"payload"]
    assert xr.global_device_count() == xr.addressable_device_count() == torch_xla.device_count()
    assert xr.using_pjrt() and not xr.is_spmd()
    xm.master_print("hello", 1)
    assert capsys.readouterr().out == "hello 1\n"
    stream = io.StringIO()
    xm.master_print("there", fd=stream)
    assert stream.getvalue() == "there\n"


def test_sync_counts_and_waits(device):
    a = torch.ones(2, device=device) + 1
    torch_xla.sync(wait=True)
    xm.mark_step()
    xm.mark_step(wait=True, reset_scope=False)
    assert metrics.counter_value("MarkStep") == 3
    assert a.tolist() == [2, 2]


def test_step_has_a_barrier_at_both_ends(device):
    a = torch.ones(2, device=device) * 3
    with torch_xla.step():
        assert metrics.counter_value("MarkStep") == 1
        b = a + 1
    assert metrics.counter_value("MarkStep") == 2
    assert b.tolist() == [4, 4]


def test_optimizer_step(device):
    parameter = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    (parameter * parameter).sum().backward()
    assert [g.tolist() for g in xm._fetch_gradients(optimizer)] == [[2, 2]]
    assert xm.optimizer_step(optimizer) is None
    assert metrics.counter_value("MarkStep") is None

    def closure():
        optimizer.zero_grad()
        loss = (parameter * parameter).sum()
        loss.backward()
        return loss

    loss = xm.optimizer_step(optimizer, barrier=True, optimizer_args={"closure": closure})
    assert metrics.counter_value("MarkStep") == 1
    assert loss.item() == 0 and parameter.tolist() == [0, 0]


def test_unlazy_and_wait(device):
    a, b = torch.ones(2, device=device) + 1, torch.ones(2, device=device) * 3
    xm.unlazy([a, b])
    executed = metrics.metric_data("ExecuteTime")[0]
    assert a.tolist() == [2, 2] and b.tolist() == [3, 3]
    assert metrics.metric_data("ExecuteTime")[0] == executed == 1
    xm.wait_device_ops()
    xm.wait_device_ops([device, str(device)])


def test_is_xla_tensor(device):
    assert xm.is_xla_tensor(torch.ones(1, device=device))
    assert not xm.is_xla_tensor(torch.ones(1))


def test_step_closures_run_after_the_barrier_in_order(device):
    seen = []
    a = torch.ones(2, device=device) + 1
    xm.add_step_closure(lambda t: seen.append(t.tolist()), args=(a,))
    xm.add_step_closure(seen.append, args=("second",))
    assert seen == []
    torch_xla.sync()
    assert seen == [[2, 2], "second"]
    torch_xla.sync()
    assert len(seen) == 2


def test_step_closure_in_another_thread(device):
    seen = []

    def closure(tensor):
        seen.append((threading.current_thread() is threading.main_thread(), tensor.tolist()))

    xm.add_step_closure(closure, args=(torch.ones(1, device=device) * 2,), run_async=True)
    torch_xla.sync()
    xm.wait_device_ops()
    assert seen == [(False, [2])]


def test_failed_step_closure_in_another_thread_shows_at_the_next_barrier():
    def fail():
        raise ValueError("on purpose")

    xm.add_step_closure(fail, run_async=True)
    torch_xla.sync()
    with pytest.raises(RuntimeError, match="asynchronous closure failed: on purpose"):
        xm.wait_device_ops()
    torch_xla.sync()


def test_random_state_is_an_integer(device):
    xm.set_rng_state(42)
    assert xm.get_rng_state() == 42
    torch.rand(2, device=device)
    state = xm.get_rng_state(device)
    first = torch.rand(3, device=device)
    xm.set_rng_state(state, device)
    assert torch.equal(torch.rand(3, device=device), first)
    with xm.fork_rng():
        torch_xla.manual_seed(1)
        inside = torch.rand(3, device=device)
    torch_xla.manual_seed(1, device)
    assert torch.equal(torch.rand(3, device=device), inside)
    with xm.fork_rng(enabled=False):
        torch_xla.manual_seed(5, "xla:0")
    assert xm.get_rng_state("xla") == 5


def test_memory_info(device):
    kept = torch.ones(3).to(device)
    info = xm.get_memory_info("xla:0")
    assert set(info) == {"bytes_used", "bytes_limit", "peak_bytes_used"}
    assert kept.nbytes <= info["bytes_used"] < info["bytes_limit"]


Point = collections.namedtuple("Point", "x y")


def test_send_cpu_data_to_device(device):
    data = [{"a": torch.ones(1), "n": 3}, Point(torch.zeros(1), ["text", torch.ones(2)])]
    first, second = xm.send_cpu_data_to_device(data, device)
    assert first["a"].device == device and first["n"] == 3
    assert isinstance(second, Point) and second.x.device == device
    assert second.y[0] == "text" and second.y[1].device == device
    assert data[0]["a"].device.type == "cpu"
    unchanged = [torch.ones(1, device=device)]
    assert xm.send_cpu_data_to_device(unchanged, device)[0] is unchanged[0]


def test_check_view_sharing(device):
    base = torch.zeros(4, device=device)
    xm.check_view_sharing([base, base.clone(), base.detach(), torch.zeros(4)])
    with pytest.raises(
        RuntimeError, match="Tensor ID 2 is sharing a view with tensor ID 1"
    ) as info:
        xm.check_view_sharing({"whole": base, "part": base[1:]})
    assert "'part' and 'whole'" in str(info.value)


def test_rate_tracker():
    tracker = xm.RateTracker(smooth_factor=0.5)
    assert tracker.rate() == 0
    tracker.add(10)
    assert tracker.rate() > 0 and tracker.global_rate() > 0


def test_sample_generator():
    generator = SampleGenerator(data=(torch.ones(2), torch.zeros(2)), sample_count=3)
    assert len(generator) == 3
    for _ in range(2):
        assert [batch[0].sum().item() for batch in generator] == [2, 2, 2]


def test_compilation_cache(device):
    xr.clear_computation_cache()
    assert xr.get_num_cached_compilation_graph() == 0
    for _ in range(2):
        (torch.ones(3, device=device) * 7).tolist()
    assert xr.get_num_cached_compilation_graph() == 1


def test_is_bf16_supported(device):
    assert xr.is_bf16_supported()
    assert torch.ones(2, device=device, dtype=torch.bfloat16).sum().item() == 2


def test_optimizers_use_foreach_kernels_by_default(device):
    parameters = [nn.Parameter(torch.ones(2, device=device)) for _ in range(3)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    sum(parameter.sum() for parameter in parameters).backward()
    optimizer.step()
    assert metrics.counter_value("xla::_foreach_add_.List") == 1
