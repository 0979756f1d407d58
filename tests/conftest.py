"""What every test starts from: seeded generators, nothing recorded, counters at zero."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

import torch_xla
from torch_xla.debug import metrics


@pytest.fixture(autouse=True)
def fresh_start() -> Iterator[None]:
    torch.manual_seed(0)
    # What the last test left behind is run or freed, so that counts are those of this test.
    gc.collect()
    if torch_xla._XLAC._xla_runtime_is_initialized():
        torch_xla.sync()
    metrics.clear_all()
    yield


@pytest.fixture
def device() -> torch.device:
    return torch_xla.device()
