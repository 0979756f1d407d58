"""dlpack shares the CPU's memory with the device, and neither side's writes reach the other."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from processes import run_in_process

import torch_xla
from torch_xla.utils import dlpack


def test_tensors_go_out_and_come_back(device):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        x = torch.arange(6).reshape(2, 3).to(dtype).to(device)
        back = dlpack.from_dlpack(dlpack.to_dlpack(x))
        assert back.device == device and back.dtype == dtype
        assert torch.equal(back.cpu(), x.cpu())
    assert dlpack.from_dlpack(dlpack.to_dlpack(torch.ones(0, 2, device=device))).shape == (0, 2)


def test_memory_of_the_device_is_shown_as_it_lies(device):
    x = torch.arange(1024.0).to(device) + 1
    torch_xla.sync(wait=True)
    first = torch_xla._XLAC._cpu_view(x)
    second = torch_xla._XLAC._cpu_view(x)
    assert first.data_ptr() == second.data_ptr()
    assert torch.equal(first, torch.arange(1024.0) + 1)


def test_memory_of_the_host_is_used_as_it_lies(device):
    x = torch.arange(1024.0)
    y = dlpack.from_dlpack(x)
    assert torch_xla._XLAC._cpu_view(y).data_ptr() == x.data_ptr()


def test_writes_on_the_device_reach_nobody_else(device):
    x = torch.ones(64)
    shared = dlpack.from_dlpack(x)
    shared.add_(1)
    torch_xla.sync(wait=True)
    assert shared.sum().item() == 128 and x.sum().item() == 64
    y = torch.ones(64, device=device) * 3
    torch_xla.sync(wait=True)
    view = torch_xla._XLAC._cpu_view(y)
    for _ in range(3):
        y.add_(1)
        torch_xla.sync(wait=True)
    assert y.sum().item() == 64 * 6 and view.sum().item() == 64 * 3


def test_each_side_outlives_the_other(device):
    x = torch.full((256,), 2.0)
    y = dlpack.from_dlpack(x)
    z = torch.full((256,), 5.0, device=device) + 0
    view = torch_xla._XLAC._cpu_view(z)
    del x, z
    gc.collect()
    junk = [torch.zeros(256) for _ in range(8)]
    assert y.sum().item() == 512 and view.sum().item() == 256 * 5 and len(junk) == 8


def test_numpy_arrays_come_in(device):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert dlpack.from_dlpack(a).tolist() == a.tolist()
    assert dlpack.from_dlpack(a[:, 1:3]).tolist() == a[:, 1:3].tolist()
    misaligned = np.arange(9, dtype=np.float32)[1:]
    assert dlpack.from_dlpack(misaligned).tolist() == misaligned.tolist()


def test_other_devices_are_refused(device):
    with pytest.raises(RuntimeError, match="not an XLA tensor"):
        dlpack.to_dlpack(torch.ones(2))


def test_shared_memory_at_exit():
    out = run_in_process(
        """
        import torch, torch_xla
        from torch_xla.utils import dlpack
        kept = torch_xla._XLAC._cpu_view(torch.ones(64, device="xla") + 1)
        other = dlpack.from_dlpack(torch.ones(64))
        print(kept.sum().item(), other.sum().item())
        """
    )
    assert out == "128.0 64.0"
