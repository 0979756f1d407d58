"""What is known of a device's memory: our own count, the live buffers, the compiler's estimate."""

from __future__ import annotations

import gc
import inspect

import pytest
import torch
from counts import counted

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import _XLAC
from torch_xla.debug import memory
from torch_xla.utils.buffer_donor_context import alias_with_buffer_donor_config

HERE = __file__
MEGABYTE = 1 << 20


def line() -> int:
    return inspect.currentframe().f_back.f_lineno


def used() -> int:
    gc.collect()
    xm.wait_device_ops()
    return xm.get_memory_info()["bytes_used"]


@pytest.fixture(autouse=True)
def plugin_without_statistics(device):
    if _XLAC._memory_stats(0):
        pytest.skip("the plugin keeps statistics of its own")


def test_arrays_are_counted(device):
    before = used()
    x = torch.ones(MEGABYTE // 4).to(device)
    assert used() - before == MEGABYTE
    y = x + 1
    assert used() - before == MEGABYTE
    torch_xla.sync(wait=True)
    assert used() - before == 2 * MEGABYTE
    del x, y
    assert used() == before


def test_peak_and_limit(device):
    _XLAC._reset_peak_bytes(0)
    before = used()
    x = torch.ones(MEGABYTE // 4).to(device)
    del x
    info = xm.get_memory_info()
    assert info["peak_bytes_used"] - before >= MEGABYTE and info["bytes_used"] == before
    assert info["bytes_limit"] > MEGABYTE


def test_memory_that_is_handed_over_is_counted_once(device):
    x = torch.ones(MEGABYTE // 4).to(device)
    torch_xla.sync(wait=True)
    before = used()
    _XLAC._reset_peak_bytes(0)
    x.add_(1)
    torch_xla.sync(wait=True)
    assert used() == before
    assert xm.get_memory_info()["peak_bytes_used"] == before


def test_a_read_keeps_no_stale_versions(device):
    """Each view has read the memory as it was before the writes after it."""
    x = torch.zeros(16, MEGABYTE // 64).to(device)
    before = used()
    rows = [x[i] for i in range(8)]
    for row in rows:
        row.add_(1)
    assert x[0, 0].item() == 1
    assert used() - before < 2 * MEGABYTE
    torch.testing.assert_close([row.cpu() for row in rows], [torch.ones(MEGABYTE // 64)] * 8)


def test_live_buffers_name_their_lines(device):
    x = torch.ones(3, MEGABYTE).to(device)
    uploaded = line() - 1
    torch_xla.settings.ir_debug = True
    y = x * 2
    computed = line() - 1
    torch_xla.settings.ir_debug = False
    z = x + y
    torch_xla.sync(wait=True)
    barrier = line() - 1
    found = {buffer.where: buffer for buffer in memory.live_buffers()}
    for where in (uploaded, computed, barrier):
        assert found[f"{HERE}:{where}"].num_bytes == 12 * MEGABYTE
        assert found[f"{HERE}:{where}"].type == f"f32[3,{MEGABYTE}]"
    sizes = [buffer.num_bytes for buffer in memory.live_buffers()]
    assert sizes == sorted(sizes, reverse=True) and z.shape == x.shape


def test_estimate_of_a_program_before_it_runs(device):
    a = torch.ones(64, 128).to(device)
    torch_xla.sync(wait=True)
    with counted() as counts:
        b = a @ a.t()
        estimate = memory.estimate([b])
    assert counts.executed == 0
    assert estimate["argument"] == 64 * 128 * 4 and estimate["output"] == 64 * 64 * 4


def test_estimate_of_the_barrier_compiles_its_program(device):
    torch_xla.runtime.clear_computation_cache()
    x = torch.ones(64, 128).to(device)
    torch_xla.sync(wait=True)
    with counted() as counts:
        x.mul_(3)
        estimate = memory.estimate()
        assert (counts.executed, estimate["alias"]) == (0, 64 * 128 * 4)
        torch_xla.sync()
    assert (counts.compiled, counts.executed) == (1, 1)
    assert x[0, 0].item() == 3


def test_an_estimate_counts_what_donors_give(device):
    given, kept = (torch.ones(1 << 10).to(device) for _ in range(2))
    assert _XLAC._set_buffer_donation(given, True)
    with alias_with_buffer_donor_config():
        result = given + kept
        estimated = memory.estimate()
        before = _XLAC._computation_stats()[0]
        torch_xla.sync(wait=True)
    assert estimated["alias"] == 4 << 10
    assert _XLAC._computation_stats()[0] == before
    assert result.sum().item() == 2 << 10
