"""A fixed part of the op database with its tensors split over four devices, each along each of its
dimensions; `python tools/conformance --split` has all of it. In children: XLA's partitioner ends
the process where it is given what it has no rule for."""

from __future__ import annotations

import pytest
import torch
import workers
from quick_options import XLA_FLAGS

# What the partitioner once got wrong or died of, and some that it has always known.
_ENTRIES = (
    *("sort", "_segment_reduce.lengths", "nn.functional.max_unpool1d.grad", "index_put"),
    *("fft.ihfft2", "fft.irfftn", "linalg.cholesky", "nn.functional.conv2d", "cumsum", "where"),
)


@pytest.fixture(scope="module", autouse=True)
def child():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPU_NUM_DEVICES", "4")
        patch.setenv("XLA_FLAGS", XLA_FLAGS)
        worker = workers.Worker("checks:check_split", timeout_s=240)
        yield worker
        worker.close()


@pytest.mark.parametrize("name", _ENTRIES)
def test_split_inputs_change_no_value(child, name):
    assert child.ask(name, torch.float32, 2, ()) == []


@pytest.mark.parametrize("name", ["take", "nn.functional.conv_transpose2d"])
def test_inputs_split_along_two_dimensions_change_no_value(child, name):
    assert child.ask(name, torch.float32, 1, (2, 2)) == []


@pytest.mark.parametrize(
    "differences", ["differences", "differences_of_padding", "differences_of_pairs"]
)
def test_programs_of_split_tensors_are_right(differences):
    worker = workers.Worker(f"split_programs:{differences}", timeout_s=240)
    assert worker.ask() == []
    worker.close()


def test_the_check_sees_a_wrong_value_and_an_error():
    worker = workers.Worker("split_programs:found_when_broken", timeout_s=240)
    wrong, failing = worker.ask()
    assert [p.case for p in wrong] == ["sample 0 tensor 0 dim 0"] and "not close" in wrong[0].detail
    assert [p.detail for p in failing] == ["ValueError: broken"]
    worker.close()
