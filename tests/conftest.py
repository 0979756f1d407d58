"""What every test starts from: seeded generators, nothing recorded, counters at zero."""

from __future__ import annotations

import gc
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

try:
    from xdist.scheduler import LoadFileScheduling
except ImportError:  # the tests run in one process then

    class LoadFileScheduling: ...  # type: ignore[no-redef]


# Counts of compilations must not depend on what an earlier run left on the disk.
os.environ["XLA_PERSISTENT_CACHE"] = "0"

from quick_options import quick_compile_options

import torch_xla
from torch_xla.debug import metrics

# Failures in what tests share are told as those in the tests.
pytest.register_assert_rewrite("both_devices", "processes")

_KNOWN_FAILURES = pathlib.Path(__file__).with_name("known_failures.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are known to fail, each with its reason; one that passes after all fails."""
    lines = filter(None, (line.strip() for line in _KNOWN_FAILURES.read_text().splitlines()))
    reasons = dict(line.split("  # ", 1) for line in lines if not line.startswith("#"))
    for item in items:
        reason = reasons.get(item.nodeid.removeprefix("tests/"))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


# Files whose tests are one entry of a database each, and depend on no other test.
_DIVIDED = ("test_ops.py", "test_op_variants.py", "test_device_generic.py")


class _ByFile(LoadFileScheduling):
    """Hands files to the workers whole, but for those of a database, which go in parts: a worker of
    its own for the longest of them would end long after the others."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        is_divided = file.endswith(_DIVIDED)
        return f"{file} {zlib.crc32(nodeid.encode()) % 8}" if is_divided else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile | None:
    return _ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True, scope="session")
def whole_products() -> None:
    """As the CPU has them: other hardware multiplies float32 in fewer bits unless asked."""
    if torch_xla.runtime.device_type() != "CPU":
        torch_xla.backends.set_mat_mul_precision("highest")


@pytest.fixture(autouse=True, scope="module")
def short_collections() -> Iterator[None]:
    """What lives before a file's first test, all imported modules above all, is left out when
    garbage is looked for before each of its tests: that took a third of a second."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    yield


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
def quick_compilation() -> Iterator[None]:
    """For tests that compile much and judge values only."""
    torch_xla.set_custom_compile_options(quick_compile_options())
    yield
    torch_xla.set_custom_compile_options({})


@pytest.fixture
def device() -> torch.device:
    return torch_xla.device()
