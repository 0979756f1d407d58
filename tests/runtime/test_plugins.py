"""Plugins of other packages: registered by a program, found by entry points, named by paths."""

from __future__ import annotations

import importlib.util
import os

import pytest
from processes import run_in_process

import torch_xla.runtime as xr
from torch_xla.experimental import plugins

_PACKAGE = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
LIBRARY = os.path.join(_PACKAGE.submodule_search_locations[0], "xla_cpu_pjrt.so")

PLUGIN = f"""
from torch_xla.experimental import plugins
import os

class Mine(plugins.DevicePlugin):
    def library_path(self):
        return {LIBRARY!r}
    def client_create_options(self):
        return {{"cpu_device_count": int(os.environ["MINE_COUNT"])}}
    def configure_single_process(self):
        os.environ["MINE_COUNT"] = "3"
"""

USE = """
import torch, torch_xla
import torch_xla.runtime as xr
print(xr.device_type(), torch_xla.device_count(), torch.ones(2, device="xla").sum().item())
"""


def test_registered_plugin_serves_its_device():
    program = (
        PLUGIN + "plugins.register_plugin('MINE', Mine())\n" + USE + "print(plugins.default())"
    )
    first, second = run_in_process(program, PJRT_DEVICE="mine").splitlines()
    assert first == "MINE 3 2.0"
    assert "Mine object" in second


def test_device_in_use_is_not_registered_again():
    program = (
        PLUGIN
        + "plugins.register_plugin('MINE', Mine())\n"
        + USE
        + """
try:
    plugins.register_plugin("MINE", Mine())
except RuntimeError as error:
    print(error)
"""
    )
    assert "in use already" in run_in_process(program, PJRT_DEVICE="MINE")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As if a package with an entry point were installed."""
    (tmp_path / "mine_plugin.py").write_text(PLUGIN)
    info = tmp_path / "mine_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch_xla.plugins]\nmine = mine_plugin:Mine\n")
    # An empty entry would stand for the current folder.
    entries = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))


def test_plugin_with_an_entry_point_is_found(installed):
    assert run_in_process(USE, PJRT_DEVICE="MINE") == "MINE 3 2.0"
    program = (
        "from torch_xla.experimental import plugins\nplugins.register_installed_plugins()\n"
        + USE
        + "print(type(plugins.default()).__name__)"
    )
    assert run_in_process(program, PJRT_DEVICE="MINE").endswith("Mine")


@pytest.mark.parametrize("variable", ["PJRT_DYNAMIC_PLUGINS", "XLA_REGISTER_INSTALLED_PLUGINS"])
def test_entry_points_can_be_left_out(installed, variable):
    program = """
import torch_xla
try:
    torch_xla.device()
except RuntimeError as error:
    print(error)
"""
    out = run_in_process(program, PJRT_DEVICE="MINE", **{variable: "0"})
    assert "no PJRT plugin for PJRT_DEVICE=MINE" in out


def test_registered_plugins_can_be_left_out():
    program = (
        PLUGIN
        + """
import torch_xla
plugins.register_plugin("MINE", Mine())
plugins.use_dynamic_plugins(False)
print(plugins.using_dynamic_plugins())
try:
    torch_xla.device()
except RuntimeError as error:
    print(error)
"""
    )
    out = run_in_process(program, PJRT_DEVICE="MINE")
    assert out.startswith("False\nno PJRT plugin for PJRT_DEVICE=MINE")


def test_library_path_of_a_kind_of_device():
    out = run_in_process(USE, PJRT_DEVICE="TPU", TPU_LIBRARY_PATH=LIBRARY)
    assert out.startswith("TPU ") and out.endswith(" 2.0")
    program = """
import torch_xla
try:
    torch_xla.device()
except RuntimeError as error:
    print(error)
"""
    out = run_in_process(program, PJRT_DEVICE="NEURON", NEURON_LIBRARY_PATH="/nowhere.so")
    assert out == "NEURON_LIBRARY_PATH=/nowhere.so: there is no such file"


def test_no_device_is_chosen_when_told_so():
    program = """
import os
os.environ.pop("PJRT_DEVICE", None)
import torch_xla
try:
    torch_xla.device()
except RuntimeError as error:
    print(error)
"""
    out = run_in_process(program, PJRT_SELECT_DEFAULT_DEVICE="0", PJRT_LIBRARY_PATH="")
    assert "PJRT_SELECT_DEFAULT_DEVICE=0" in out


def test_a_plugin_must_say_its_library():
    with pytest.raises(NotImplementedError, match="does not say its library_path"):
        plugins.DevicePlugin().library_path()
    assert plugins.DevicePlugin().configure_multiprocess(1, 4) == 4
    assert plugins.DevicePlugin().physical_chip_count() == 1
    assert not plugins.DevicePlugin().requires_xla_coordinator()


def test_default_plugin_of_a_device_that_nobody_registered():
    with pytest.raises(RuntimeError, match="served by no plugin"):
        plugins.default()
    assert isinstance(xr.device_type(), str)


def test_a_plugin_that_fails_to_start_says_why_and_may_be_tried_again():
    """A number of devices of the wrong type, none at all, and then two."""
    program = (
        PLUGIN
        + """
class Configured(Mine):
    def __init__(self, count):
        self.count = count
    def client_create_options(self):
        return {"cpu_device_count": self.count}

import torch, torch_xla
for name, count in (("ONE", "two"), ("OTHER", 0), ("LAST", 2)):
    plugins.register_plugin(name, Configured(count))
    torch_xla.settings.pjrt_device = name
    try:
        print(torch.ones(2, device="xla").sum().item(), torch_xla.device_count())
    except RuntimeError as error:
        print(error)
"""
    )
    first, second, last = run_in_process(program).splitlines()
    assert "'ONE'" in first and LIBRARY in first and "PJRT_Client_Create" in first
    assert "'OTHER'" in second and "no device" in second
    assert last == "2.0 2"


def test_what_is_no_plugin_is_refused():
    for bad in (3, plugins.DevicePlugin, None):
        with pytest.raises(TypeError, match="an object with the methods of DevicePlugin"):
            plugins.register_plugin("OTHER", bad)
    with pytest.raises(TypeError, match="expected the name of a device, got 3"):
        plugins.register_plugin(3, plugins.DevicePlugin())
    with pytest.raises(TypeError, match="expected the name of a device, got None"):
        xr.set_device_type(None)


def test_of_two_plugins_for_a_device_one_is_taken_and_both_are_named(installed, tmp_path):
    info = tmp_path / "more_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch_xla.plugins]\nmine13 = mine_plugin:Mine\n")
    log = "import logging, sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
    said, used = run_in_process(log + USE, PJRT_DEVICE="MINE").splitlines()
    assert said.startswith("torch_xla: mine13 (mine_plugin:Mine) is the plugin for MINE;")
    assert "as well: mine (mine_plugin:Mine)" in said and "PJRT_LIBRARY_PATH" in said
    assert used == "MINE 3 2.0"


PLACE = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("kind", "variables", "expected"),
    [
        ("CUDA", {}, {"num_nodes": 4, "node_id": 1, "visible_devices": [1]}),
        ("CUDA", {"CUDA_VISIBLE_DEVICES": "2,3"}, {"visible_devices": [1]}),
        ("CUDA", {"CUDA_VISIBLE_DEVICES": "3"}, {"num_nodes": 4, "node_id": 1}),
        ("ROCM", {"HIP_VISIBLE_DEVICES": "3"}, {"num_nodes": 4, "node_id": 1}),
        ("MINE", {}, {"num_nodes": 4, "node_id": 1}),
        ("TPU", {}, {}),
    ],
)
def test_plugins_are_told_a_processs_place(monkeypatch, kind, variables, expected):
    from torch_xla._replicas import spanning_client

    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**PLACE, **variables}.items():
        monkeypatch.setenv(name, value)
    place = spanning_client._place(kind)
    assert place == {**place, **expected} and ("visible_devices" in place) == (
        "visible_devices" in expected
    )


def test_processes_drive_a_chip_each(monkeypatch):
    from torch_xla import _tpu_chips as tpu

    names = ("TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_VISIBLE_CHIPS")
    names += ("TPU_PROCESS_ADDRESSES", "TPU_PROCESS_PORT", "CLOUD_TPU_TASK_ID")

    def told():
        return [os.environ.get(name) for name in names]

    for name in names:
        monkeypatch.setenv(name, "")  # so that what is set below does not stay
        monkeypatch.delenv(name)
    tpu.configure_topology(1, 4)
    addresses = "localhost:8476,localhost:8477,localhost:8478,localhost:8479"
    assert told() == ["2,2,1", "1,1,1", "1", addresses, "8477", "1"]
    tpu.configure_topology(7, 8)  # it stays as it was
    assert told()[2] == "1"
    monkeypatch.delenv("TPU_PROCESS_BOUNDS")
    with pytest.raises(ValueError, match="3 processes can't drive a chip each"):
        tpu.configure_topology(0, 3)
    monkeypatch.setattr(tpu, "chips", lambda: ["0x0027"] * 4)
    with pytest.raises(ValueError, match="this host, which has 4; start 1, 2, 4, 8, or"):
        tpu.configure_topology(0, 8)
    monkeypatch.delenv("TPU_VISIBLE_CHIPS")
    tpu.configure_one_chip_topology()
    assert told()[:3] == ["1,1,1", "1,1,1", "0"]


def test_plugins_prepare_one_of_several_processes(monkeypatch):
    from torch_xla import _plugins

    class Mine(plugins.DevicePlugin):
        able, prepared = 2, ()

        def library_path(self):
            return LIBRARY

        def configure_multiprocess(self, local_rank, local_world_size):
            self.prepared = (local_rank, local_world_size)
            return self.able

    plugin = Mine()
    assert _plugins._spec_of(plugin, (1, 2)) == (LIBRARY, {}) and plugin.prepared == (1, 2)
    monkeypatch.setitem(_plugins._registered, "MINE", plugin)
    assert not _plugins.needs_coordinator("MINE") and _plugins.needs_coordinator("CUDA")
    Mine.able = 1
    with pytest.raises(RuntimeError, match="Mine can run 1 processes on this host, and there are"):
        _plugins._spec_of(plugin, (1, 2))
