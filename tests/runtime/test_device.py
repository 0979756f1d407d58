"""Devices: their names, counts, the current one, `torch.xla`, random state, memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from processes import run_in_process

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch_xla.debug import metrics


def test_device_names(device):
    assert str(device) == "xla:0"
    assert torch_xla.device(0) == device
    assert torch_xla.devices()[0] == device
    assert len(torch_xla.devices()) == torch_xla.device_count() == torch.xla.device_count()
    kind, number = torch_xla.real_devices()[0].split(":")
    assert kind == torch_xla.runtime.device_type() and number == "0"


def test_plain_device_string_is_the_current_device():
    assert torch.ones(2, device="xla").device == torch_xla.device()
    assert torch.ones(2).to("xla").device == torch_xla.device()
    assert torch.ones(2).to(torch.device("xla", 0)).device.index == 0


@pytest.mark.parametrize("make", [torch_xla.device, torch.xla.set_device])
def test_missing_index_is_an_error(make):
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        make(99)
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        torch.ones(2, device="xla:99")
    assert torch.ones(2, device="xla").tolist() == [1, 1]


def test_device_module_is_what_torch_finds():
    assert torch.get_device_module("xla") is torch.xla
    assert torch.xla.is_available() and torch.xla.is_initialized()
    assert torch.xla.current_device() == 0
    assert isinstance(torch.xla.get_device_name(), str)
    assert torch.xla.get_device_properties().total_memory > 0
    assert torch.xla.is_bf16_supported()


def test_device_context_restores():
    with torch.xla.device(0):
        assert torch.xla.current_device() == 0
    with torch.xla.device(None), torch.xla.device_of(torch.ones(1)):
        assert torch.xla.current_device() == 0


def test_several_devices():
    output = run_in_process(
        """
        import threading
        import torch, torch_xla
        assert torch_xla.device_count() == 3, torch_xla.devices()
        a = torch.ones(2, device="xla:1") + 1
        assert a.device == torch.device("xla", 1)
        with torch.xla.device(2):
            b = torch.ones(2, device="xla") * 3
            torch_xla.sync()
        assert torch.xla.current_device() == 0
        assert b.device.index == 2
        assert (a.to("xla:2") + b).tolist() == [5, 5]
        torch.xla.set_device("xla:1")
        other_thread = []
        thread = threading.Thread(target=lambda: other_thread.append(torch.xla.current_device()))
        thread.start()
        thread.join()
        assert other_thread == [0] and torch.xla.current_device() == 1
        try:
            a + b
        except RuntimeError as error:
            print(error)
        """,
        PJRT_DEVICE="CPU",
        CPU_NUM_DEVICES="3",
    )
    assert "xla:1" in output and "xla:2" in output


def test_synchronize_runs_what_was_recorded(device):
    a = torch.ones(3, device=device) * 2
    torch.xla.synchronize()
    assert metrics.metric_data("ExecuteTime")[0] == 1
    assert a.tolist() == [2, 2, 2]


def test_random_state_of_the_device_module(device):
    state = torch.xla.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = torch.rand(4, device=device)
    torch.xla.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=device), first)
    torch.xla.manual_seed(7)
    assert torch.xla.initial_seed() == 7
    torch.xla.manual_seed_all(8)
    assert torch.xla.default_generators[0].initial_seed() == 8


def test_torch_manual_seed_reaches_the_device():
    torch.manual_seed(123)
    assert torch.xla.initial_seed() == 123
    torch.random.manual_seed(124)
    assert torch.xla.initial_seed() == 124
    assert torch.seed() == torch.xla.initial_seed()


def test_device_seeds_leave_the_cpu_generator_alone(device):
    state = torch.get_rng_state()
    torch_xla.manual_seed(5)
    torch.rand(3, device=device).cpu()
    assert torch.equal(torch.get_rng_state(), state)


def test_fork_rng_of_torch(device):
    torch.manual_seed(3)
    with torch.random.fork_rng(device_type="xla"):
        torch.rand(3, device=device)
    first = torch.rand(3, device=device)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3, device=device), first)


def test_own_generator(device):
    generator = torch.Generator(device="xla").manual_seed(11)
    state = torch.xla.get_rng_state()
    first = torch.rand(4, device=device, generator=generator)
    assert torch.equal(torch.xla.get_rng_state(), state)
    generator.manual_seed(11)
    assert torch.equal(torch.rand(4, device=device, generator=generator), first)


def test_activation_checkpointing_repeats_the_dropout(device):
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(64, device=device, requires_grad=True)
    for use_reentrant in (True, False):
        x.grad = None
        y = checkpoint(torch.nn.functional.dropout, x, 0.5, use_reentrant=use_reentrant)
        y.sum().backward()
        assert torch.equal(x.grad, y.detach())


def test_memory_figures(device):
    kept = torch.ones(3).to(device)
    stats = torch.xla.memory_stats()
    assert isinstance(stats, dict)
    assert kept.nbytes <= torch.xla.memory_allocated() <= torch.xla.max_memory_allocated() * 1.01
    free, total = torch.xla.mem_get_info()
    assert 0 < free < total
    torch.xla.empty_cache()


@pytest.mark.parametrize("index", [128, 200, 254])
def test_numbers_that_pytorch_cannot_count_to_are_named_as_given(device, index):
    # PyTorch reads them as negative ones.
    named = f"device index {index} does not exist"
    for call in (
        lambda: torch.ones(2).to(f"xla:{index}"),
        lambda: torch.ones(2).to(torch.device("xla", index)),
        lambda: torch.Generator(f"xla:{index}"),
        lambda: torch_xla.device(index),
        lambda: xm.get_memory_info(f"xla:{index}"),
        lambda: xm.get_memory_info(torch.device("xla", index)),
        lambda: torch.xla.set_device(index),
        lambda: torch.xla.get_rng_state(index),
        lambda: pl.ParallelLoader([], [index]),
    ):
        with pytest.raises(RuntimeError, match=named):
            call()


@pytest.mark.parametrize("index", [255, 256, 512])
def test_numbers_that_pytorch_loses_are_named_where_they_are_seen(device, index):
    # PyTorch has lost all trace of them (docs/errors.md).
    assert torch.device(f"xla:{index}").index == (None if index == 255 else 0)
    assert torch.device("xla", index).index == (None if index == 255 else 0)
    named = f"device index {index} does not exist"
    for call in (
        lambda: torch_xla.device(index),
        lambda: xm.get_memory_info(f"xla:{index}"),
        lambda: torch.xla.set_device(index),
        lambda: torch.xla.get_rng_state(f"xla:{index}"),
    ):
        with pytest.raises(RuntimeError, match=named):
            call()


def test_senseless_numbers_of_devices_are_said():
    for number in ("0", "-1", "128"):
        code = "import torch_xla; torch_xla._XLAC._device_count_upper_bound()"
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "CPU_NUM_DEVICES": number, "PJRT_DEVICE": "CPU"},
            check=True,
        )
        assert (
            f"CPU_NUM_DEVICES must be an integer of at least 1 and at most 127, got '{number}'"
            in (done.stderr)
        )


def test_settings_are_attributes():
    settings = torch_xla.settings
    before = settings.max_inflight_launches
    try:
        settings.max_inflight_launches = before + 1
        assert settings.max_inflight_launches == before + 1
        with pytest.raises(ValueError, match="XLA_MAX_INFLIGHT_LAUNCHES must be an integer"):
            settings.max_inflight_launches = "many"
    finally:
        settings.max_inflight_launches = before
    for name, kind in (("persistent_cache_path", "str"), ("pt_xla_debug", "bool")):
        with pytest.raises(TypeError, match=f"settings.{name} must be a {kind}, got None"):
            setattr(settings, name, None)
    assert isinstance(settings.enable_param_aliasing, bool)
    assert "xla_flags" in dir(settings)
    with pytest.raises(AttributeError, match="no setting 'unheard_of'"):
        settings.unheard_of  # noqa: B018


def test_a_device_that_was_shut_down_starts_anew():
    """What is kept for later, such as the token of the collectives, is not of the device before."""
    out = run_in_process(
        """
        import torch, torch_xla, torch.distributed as dist
        import torch_xla.distributed.xla_backend
        from torch_xla import _XLAC

        dist.init_process_group("xla", store=dist.HashStore(), rank=0, world_size=1)
        functional, group = torch.ops._c10d_functional, dist.group.WORLD.group_name

        def used():
            x = torch.ones(3).to("xla")
            graph = [functional.wait_tensor(functional.all_reduce(x, "sum", group)) * 5]
            key = _XLAC._get_graph_hash(graph)
            _XLAC._xla_warm_up_cache(graph, [])
            print(graph[0].tolist(), _XLAC._run_cached_graph(key, [x])[0].tolist())
            return x, key

        x, key = used()
        _XLAC._shutdown()
        for use in (x.tolist, lambda: _XLAC._run_cached_graph(key, [x])):
            try:
                use()
            except RuntimeError as error:
                print(error)
        used()
        """
    )
    assert out.splitlines() == [
        "[5.0, 5.0, 5.0] [5.0, 5.0, 5.0]",
        "the tensor's device was shut down",
        "run_cached_graph: no graph of this hash was warmed up",
        "[5.0, 5.0, 5.0] [5.0, 5.0, 5.0]",
    ]
